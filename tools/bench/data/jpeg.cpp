#include "tools/bench/data/jpeg.hpp"

#include <cstdio>
#include <cstdlib>

// After cstdio, which this header needs but does not include.
#include <jpeglib.h>

namespace troupe::bench {

std::vector<std::uint8_t> encode_jpeg(const std::vector<std::uint8_t>& pixels, std::uint32_t height,
                                      std::uint32_t width, int quality) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);  // an error ends the program, which is acceptable for a measurement
  jpeg_create_compress(&jpeg);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &out, &size);
  jpeg.image_height = height;
  jpeg.image_width = width;
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, quality, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < height) {
    auto* row = const_cast<JSAMPLE*>(pixels.data()) + std::size_t{jpeg.next_scanline} * width * 3;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::vector<std::uint8_t> bytes(out, out + size);
  std::free(out);
  jpeg_destroy_compress(&jpeg);
  return bytes;
}

}  // namespace troupe::bench
