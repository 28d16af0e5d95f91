#pragma once

#include <spng.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

// After cstdio, which it takes for granted.
#include <jpeglib.h>

#include "tests/runtime/data/corpus.hpp"

namespace troupe::testing {

/// A JPEG of `pixels` [height, width, channels], 1 (grey), 3 (RGB) or 4 (CMYK). `across`, `down`: pixels for which a
/// color of RGB has one sample.
inline Bytes jpeg_of(const Bytes& pixels, std::uint32_t height, std::uint32_t width, int channels, int quality = 95,
                     bool progressive = false, int across = 2, int down = 2) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &out, &size);
  jpeg.image_height = height;
  jpeg.image_width = width;
  jpeg.input_components = channels;
  jpeg.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, quality, TRUE);
  if (channels == 3) {
    jpeg.comp_info[0].h_samp_factor = across;
    jpeg.comp_info[0].v_samp_factor = down;
  }
  if (progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < height) {
    auto* row = const_cast<JSAMPLE*>(pixels.data()) + std::size_t{jpeg.next_scanline} * width * channels;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  Bytes bytes(out, out + size);
  std::free(out);
  jpeg_destroy_compress(&jpeg);
  return bytes;
}

/// A PNG of `pixels` [height, width, channels], 1 (grey), 3 (RGB) or 4 (RGBA).
inline Bytes png_of(const Bytes& pixels, std::uint32_t height, std::uint32_t width, int channels) {
  spng_ctx* const png = spng_ctx_new(SPNG_CTX_ENCODER);
  spng_set_option(png, SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr head{};
  head.height = height;
  head.width = width;
  head.bit_depth = 8;
  head.color_type = static_cast<std::uint8_t>(channels == 1   ? SPNG_COLOR_TYPE_GRAYSCALE
                                              : channels == 3 ? SPNG_COLOR_TYPE_TRUECOLOR
                                                              : SPNG_COLOR_TYPE_TRUECOLOR_ALPHA);
  spng_set_ihdr(png, &head);
  spng_encode_image(png, pixels.data(), pixels.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
  std::size_t size = 0;
  int error = 0;
  auto* const out = static_cast<unsigned char*>(spng_get_png_buffer(png, &size, &error));
  Bytes bytes(out, out + size);
  std::free(out);
  spng_ctx_free(png);
  return bytes;
}

/// A smooth image, which survives compression: waves of a length of about 40 pixels.
inline Bytes smooth_image(std::uint32_t height, std::uint32_t width, int channels, unsigned variant = 0) {
  Bytes pixels(std::size_t{height} * width * static_cast<std::size_t>(channels));
  std::size_t at = 0;
  for (std::uint32_t y = 0; y < height; ++y)
    for (std::uint32_t x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c)
        pixels[at++] = static_cast<std::uint8_t>(127.5 + 100 * std::sin(0.15 * x + 0.1 * y + c + variant));
  return pixels;
}

}  // namespace troupe::testing
