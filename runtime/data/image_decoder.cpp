#include "runtime/data/image_decoder.hpp"

#include <spng.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

// After cstdio, which they require.
#include <jerror.h>
#include <jpeglib.h>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

constexpr int kMostScans = 200;  // of a progressive image; each scan goes through the whole image again
constexpr long kMostJpegMemory = 1L << 30;
constexpr std::size_t kMostChunkBytes = std::size_t{16} << 20;  // of the data in a PNG besides its pixels
constexpr std::uint32_t kFilledChannels = 4;
constexpr int kMostPlanes = 3;
constexpr int kRowsAround = 3;  // of a subsampled plane, on each side of those that a window covers

/// On errors libjpeg leaves its functions by longjmp, so no object with a destructor may exist between that and setjmp.
struct JpegErrors {
  jpeg_error_mgr base;
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> text;
};

[[noreturn]] void leave(j_common_ptr jpeg) {
  auto* const errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  errors->base.format_message(jpeg, errors->text.data());
  std::longjmp(errors->back, 1);
}

/// A warning means that pixels were invented, except for extra bytes between segments.
void take_message(j_common_ptr jpeg, int level) {
  if (level < 0 && jpeg->err->msg_code != JWRN_EXTRANEOUS_DATA) leave(jpeg);
}

struct JpegProgress {
  jpeg_progress_mgr base;
};

void limit_scans(j_common_ptr jpeg) {
  auto* const decompress = reinterpret_cast<j_decompress_ptr>(jpeg);
  if (decompress->input_scan_number <= kMostScans) return;
  auto* const errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  std::snprintf(errors->text.data(), errors->text.size(), "more than %d scans", kMostScans);
  std::longjmp(errors->back, 1);
}

/// The range of pixels needed along one axis.
struct PixelRun {
  std::uint32_t first = 0;
  std::uint32_t end = 0;
};

PixelRun needed(double first, double extent, std::uint32_t count, std::uint32_t to) {
  const double reach = std::max(1.0, extent / to) + 1;
  const double low = std::floor(first - reach), high = std::ceil(first + extent + reach);
  return {static_cast<std::uint32_t>(std::max(0.0, low)),
          static_cast<std::uint32_t>(std::min(static_cast<double>(count), high))};
}

/// 8, 4, 2 or 1: the shrunk window is at least as large as the result.
unsigned shrink_factor(const PixelWindow& window, std::uint32_t height, std::uint32_t width) {
  for (const unsigned factor : {8U, 4U, 2U})
    if (window.height >= factor * static_cast<double>(height) && window.width >= factor * static_cast<double>(width))
      return factor;
  return 1;
}

/// From cyan, magenta, yellow and black, which Adobe's files store inverted.
void to_rgbx(std::uint8_t* pixels, std::size_t count, bool inverted) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint8_t* const p = pixels + 4 * i;
    const unsigned k = inverted ? p[3] : 255U - p[3];
    for (int c = 0; c < 3; ++c) p[c] = static_cast<std::uint8_t>((inverted ? p[c] : 255U - p[c]) * k / 255);
  }
}

bool is_png(std::span<const std::uint8_t> bytes) {
  constexpr std::array<std::uint8_t, 8> kMagic{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  return bytes.size() >= kMagic.size() && std::equal(kMagic.begin(), kMagic.end(), bytes.begin());
}
bool is_jpeg(std::span<const std::uint8_t> bytes) {
  return bytes.size() >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

std::string size_fault(std::uint64_t height, std::uint64_t width) {
  if (height * width <= kMostImagePixels) return {};
  return text("is ", height, " x ", width, " pixels large, more than the ", kMostImagePixels, " that are taken");
}

/// Side of what a block of 8 x 8 coefficients is decoded to: of one component, and the least of all.
#if JPEG_LIB_VERSION >= 70
int block_side(const jpeg_component_info& component) { return component.DCT_h_scaled_size; }
int least_block_side(const jpeg_decompress_struct& jpeg) { return jpeg.min_DCT_h_scaled_size; }
#else
int block_side(const jpeg_component_info& component) { return component.DCT_scaled_size; }
int least_block_side(const jpeg_decompress_struct& jpeg) { return jpeg.min_DCT_scaled_size; }
#endif

struct SpngFree {
  void operator()(spng_ctx* context) const noexcept { spng_ctx_free(context); }
};

}  // namespace

struct ImageDecoder::State {
  State() {
    jpeg.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = leave;
    errors.base.emit_message = take_message;
    errors.base.output_message = [](j_common_ptr) {};
    if (setjmp(errors.back) != 0) fail(Code::out_of_memory, text("libjpeg cannot start: ", errors.text.data()));
    jpeg_create_decompress(&jpeg);
    jpeg.mem->max_memory_to_use = kMostJpegMemory;
    progress.base.progress_monitor = limit_scans;
    jpeg.progress = &progress.base;
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { jpeg_destroy_decompress(&jpeg); }

  bool read_jpeg_head(std::span<const std::uint8_t> bytes) noexcept {
    if (setjmp(errors.back) != 0) return false;
    jpeg_abort_decompress(&jpeg);
    jpeg_mem_src(&jpeg, bytes.data(), static_cast<unsigned long>(bytes.size()));
    jpeg_read_header(&jpeg, TRUE);
    return true;
  }
  /// Starts decoding at 1 / factor. Then the size of the result is known.
  bool start_jpeg(unsigned factor) noexcept {
    if (setjmp(errors.back) != 0) return false;
    const bool inks = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
    jpeg.raw_data_out = FALSE;
    jpeg.out_color_space = inks ? JCS_CMYK : JCS_EXT_RGBX;
    jpeg.scale_num = 1;
    jpeg.scale_denom = factor;
    jpeg.dct_method = JDCT_ISLOW;
    return jpeg_start_decompress(&jpeg) == TRUE;
  }
  /// Sets `columns` to the actual ones: they begin at a block.
  bool crop_jpeg(PixelRun& columns) noexcept {
    if (setjmp(errors.back) != 0) return false;
    JDIMENSION first = columns.first, count = columns.end - columns.first;
    if (count < jpeg.output_width)
      jpeg_crop_scanline(&jpeg, &first, &count);
    else
      first = 0;
    columns = {first, first + count};
    return true;
  }
  bool read_jpeg_rows(PixelRun rows, std::size_t stride) noexcept {
    if (setjmp(errors.back) != 0) return false;
    if (rows.first > 0) jpeg_skip_scanlines(&jpeg, rows.first);
    for (std::uint32_t y = rows.first; y < rows.end;) {
      JSAMPROW row = pixels.data() + (y - rows.first) * stride;
      y += jpeg_read_scanlines(&jpeg, &row, 1);
    }
    jpeg_abort_decompress(&jpeg);
    return true;
  }
  /// Starts decoding by 1 / factor into planes as they are stored.
  bool start_planes(unsigned factor) noexcept {
    if (setjmp(errors.back) != 0) return false;
    jpeg.raw_data_out = TRUE;
    jpeg.out_color_space = jpeg.jpeg_color_space;
    jpeg.scale_num = 1;
    jpeg.scale_denom = factor;
    jpeg.dct_method = JDCT_ISLOW;
    return jpeg_start_decompress(&jpeg) == TRUE;
  }
  /// Reads bands (the rows of one MCU) up to `bands.end`. Those before `bands.first` are passed over: their
  /// coefficients are read, since the next ones follow them, but not transformed. `planes` are of bands.first.
  bool read_bands(PixelRun bands, const PixelPlanes& planes) noexcept {
    if (setjmp(errors.back) != 0) return false;
    std::array<std::array<JSAMPROW, MAX_SAMP_FACTOR * DCTSIZE>, kMostPlanes> rows;
    std::array<JSAMPARRAY, kMostPlanes> all;
    for (std::uint32_t band = 0; band < bands.end; ++band) {
      for (std::uint32_t c = 0; c < planes.count; ++c) {
        jpeg_component_info& component = jpeg.comp_info[c];
        component.component_needed = band >= bands.first ? TRUE : FALSE;
        const std::size_t count = band_rows(c), first = band >= bands.first ? (band - bands.first) * count : 0;
        all[c] = rows[c].data();
        for (std::size_t y = 0; y < count; ++y)
          rows[c][y] = const_cast<JSAMPROW>(planes.planes[c].data) + (first + y) * planes.planes[c].stride;
      }
      jpeg_read_raw_data(&jpeg, all.data(), band_lines());
    }
    jpeg_abort_decompress(&jpeg);
    return true;
  }
  /// Rows of a plane that one band has, and rows of the image.
  std::uint32_t band_rows(std::uint32_t plane) const noexcept {
    return static_cast<std::uint32_t>(jpeg.comp_info[plane].v_samp_factor * block_side(jpeg.comp_info[plane]));
  }
  std::uint32_t band_lines() const noexcept {
    return static_cast<std::uint32_t>(jpeg.max_v_samp_factor * least_block_side(jpeg));
  }
  std::string jpeg_fault() const { return text("is a damaged JPEG (", errors.text.data(), ")"); }

  std::string open_png(std::span<const std::uint8_t> bytes) {
    png.reset(spng_ctx_new(0));
    TROUPE_CHECK(png != nullptr, Code::out_of_memory, "libspng cannot start");
    spng_set_image_limits(png.get(), 1U << 20, 1U << 20);
    spng_set_chunk_limits(png.get(), kMostChunkBytes, 2 * kMostChunkBytes);
    spng_ihdr head{};
    int error = spng_set_png_buffer(png.get(), bytes.data(), bytes.size());
    if (error == 0) error = spng_get_ihdr(png.get(), &head);
    if (error != 0) return text("is a damaged PNG (", spng_strerror(error), ")");
    height = head.height;
    width = head.width;
    return size_fault(height, width);
  }

  Decoded decode_png(const PixelWindow& window) {
    Decoded decoded{.window = window};
    const std::size_t stride = std::size_t{width} * kFilledChannels;
    pixels.resize(stride * height);
    const int error = spng_decode_image(png.get(), pixels.data(), pixels.size(), SPNG_FMT_RGBA8, 0);
    png.reset();
    if (error != 0) decoded.fault = text("is a damaged PNG (", spng_strerror(error), ")");
    decoded.pixels = {pixels.data(), height, width, kFilledChannels, stride};
    return decoded;
  }

  Decoded decode_jpeg(const PixelWindow& window, std::uint32_t to_height, std::uint32_t to_width) {
    Decoded decoded;
    const unsigned factor = shrink_factor(window, to_height, to_width);
    if (!start_jpeg(factor)) return {.fault = jpeg_fault()};
    const PixelWindow small{window.top / factor, window.left / factor, window.height / factor, window.width / factor};
    const PixelRun rows = needed(small.top, small.height, jpeg.output_height, to_height);
    PixelRun columns = needed(small.left, small.width, jpeg.output_width, to_width);
    if (!crop_jpeg(columns)) return {.fault = jpeg_fault()};
    const std::uint32_t count_columns = jpeg.output_width;
    const std::size_t stride = std::size_t{count_columns} * kFilledChannels;
    pixels.resize(stride * (rows.end - rows.first));
    const bool inks = jpeg.out_color_space == JCS_CMYK;
    const bool inverted = jpeg.saw_Adobe_marker == TRUE;
    if (!read_jpeg_rows(rows, stride)) return {.fault = jpeg_fault()};
    if (inks) to_rgbx(pixels.data(), pixels.size() / 4, inverted);
    decoded.pixels = {pixels.data(), rows.end - rows.first, count_columns, kFilledChannels, stride};
    decoded.window = {small.top - rows.first, small.left - columns.first, small.height, small.width};
    return decoded;
  }

  /// Grey, or luma and chroma, whose samples stand for whole numbers of pixels.
  bool has_planes() const noexcept {
    if (jpeg.jpeg_color_space == JCS_GRAYSCALE) return jpeg.num_components == 1;
    if (jpeg.jpeg_color_space != JCS_YCbCr || jpeg.num_components != kMostPlanes) return false;
    return std::all_of(jpeg.comp_info, jpeg.comp_info + kMostPlanes, [this](const jpeg_component_info& component) {
      return jpeg.max_h_samp_factor % component.h_samp_factor == 0 &&
             jpeg.max_v_samp_factor % component.v_samp_factor == 0;
    });
  }

  Decoded decode_planes(const PixelWindow& window, std::uint32_t to_height, std::uint32_t to_width) {
    const unsigned factor = shrink_factor(window, to_height, to_width);
    if (!start_planes(factor)) return {.fault = jpeg_fault()};
    Decoded decoded{
        .window = {window.top / factor, window.left / factor, window.height / factor, window.width / factor}};
    PixelRun rows = needed(decoded.window.top, decoded.window.height, jpeg.output_height, to_height);
    // Rows of a subsampled plane are blended from the ones around them.
    const auto around = static_cast<std::uint32_t>(kRowsAround * jpeg.max_v_samp_factor);
    rows.first -= std::min(rows.first, around);
    rows.end = std::min(rows.end + around, static_cast<std::uint32_t>(jpeg.output_height));
    const PixelRun bands{rows.first / band_lines(), (rows.end + band_lines() - 1) / band_lines()};
    decoded.planes = lay_out_planes(bands);
    if (!read_bands(bands, decoded.planes)) return {.fault = jpeg_fault()};
    return decoded;
  }

  /// Room in `pixels` for what these bands decode to.
  PixelPlanes lay_out_planes(PixelRun bands) {
    PixelPlanes planes{.count = static_cast<std::uint32_t>(jpeg.num_components),
                       .height = jpeg.output_height,
                       .width = jpeg.output_width,
                       .luma = jpeg.jpeg_color_space == JCS_YCbCr};
    std::array<std::size_t, kMostPlanes> begin{};
    std::size_t total = 0;
    for (std::uint32_t c = 0; c < planes.count; ++c) {
      const jpeg_component_info& component = jpeg.comp_info[c];
      const auto side = static_cast<std::uint32_t>(block_side(component));
      const auto across = static_cast<std::uint32_t>(component.h_samp_factor) * side;
      const auto blocks = static_cast<std::size_t>(component.width_in_blocks + component.h_samp_factor);
      planes.planes[c] = {
          .stride = blocks * side,
          .first_row = bands.first * band_rows(c),
          .end_row = bands.end * band_rows(c),
          .height = component.downsampled_height,
          .width = component.downsampled_width,
          .down = band_lines() / band_rows(c),
          .across = static_cast<std::uint32_t>(jpeg.max_h_samp_factor * least_block_side(jpeg)) / across};
      begin[c] = total;
      total += planes.planes[c].stride * (bands.end - bands.first) * band_rows(c);
    }
    pixels.resize(total);
    for (std::uint32_t c = 0; c < planes.count; ++c) planes.planes[c].data = pixels.data() + begin[c];
    return planes;
  }

  jpeg_decompress_struct jpeg{};
  JpegErrors errors{};
  JpegProgress progress{};
  std::unique_ptr<spng_ctx, SpngFree> png;  // of an open PNG
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::vector<std::uint8_t> pixels;
};

ImageDecoder::ImageDecoder() : state_(std::make_unique<State>()) {}
ImageDecoder::~ImageDecoder() = default;
ImageDecoder::ImageDecoder(ImageDecoder&&) noexcept = default;
ImageDecoder& ImageDecoder::operator=(ImageDecoder&&) noexcept = default;

std::string ImageDecoder::open(std::span<const std::uint8_t> bytes) {
  state_->png.reset();
  if (is_png(bytes)) return state_->open_png(bytes);
  if (bytes.empty()) return "is empty";
  if (!is_jpeg(bytes)) return "is neither a JPEG nor a PNG by its first bytes";
  if (!state_->read_jpeg_head(bytes)) return state_->jpeg_fault();
  state_->height = state_->jpeg.image_height;
  state_->width = state_->jpeg.image_width;
  return size_fault(state_->height, state_->width);
}

std::uint32_t ImageDecoder::height() const noexcept { return state_->height; }
std::uint32_t ImageDecoder::width() const noexcept { return state_->width; }

ImageDecoder::Decoded ImageDecoder::decode(const PixelWindow& window, std::uint32_t height, std::uint32_t width) {
  if (state_->png) return state_->decode_png(window);
  return state_->decode_jpeg(window, height, width);
}

bool ImageDecoder::has_planes() const noexcept { return state_->png == nullptr && state_->has_planes(); }

ImageDecoder::Decoded ImageDecoder::decode_planes(const PixelWindow& window, std::uint32_t height,
                                                  std::uint32_t width) {
  TROUPE_CHECK(has_planes(), Code::invalid, "an image without planes is decoded by decode()");
  return state_->decode_planes(window, height, width);
}

}  // namespace troupe
