#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/data/resizer.hpp"

namespace troupe {

/// Images with more pixels are refused.
inline constexpr std::uint64_t kMostImagePixels = std::uint64_t{1} << 26;

/// Decodes JPEG (libjpeg-turbo) and PNG (libspng) images, distinguished by their first bytes, one after the other:
/// open(), then decode(). The result is always red, green and blue: grey is repeated three times, transparency is
/// dropped. Memory grows with the largest image. Threads: one.
class ImageDecoder {
 public:
  ImageDecoder();
  ~ImageDecoder();
  ImageDecoder(ImageDecoder&&) noexcept;
  ImageDecoder& operator=(ImageDecoder&&) noexcept;

  /// Reads the header of an image; `bytes` must not change until it is decoded. Returns what is wrong with it, as a
  /// phrase for people; empty: nothing. decode() finds damage after the header.
  std::string open(std::span<const std::uint8_t> bytes);
  /// Of the open image.
  std::uint32_t height() const noexcept;
  std::uint32_t width() const noexcept;

  struct Decoded {
    PixelView pixels;    // the decoder's own, until the next call; four channels, of which the last is filling
    PixelPlanes planes;  // of decode_planes(), likewise
    PixelWindow window;  // where in either the wanted window lies
    std::string fault;   // what is wrong with the image; empty: nothing
  };
  /// Decodes what `window` needs to be resized to `height` x `width`, and little more: of a JPEG only the rows and
  /// columns around it, at 1/2, 1/4 or 1/8 size if the window is at least that much larger than the result. Call once
  /// for each open().
  Decoded decode(const PixelWindow& window, std::uint32_t height, std::uint32_t width);
  /// Whether the image that is open can be decoded by decode_planes(): a JPEG of grey, or of luma and chroma.
  bool has_planes() const noexcept;
  /// The same, but the planes of a JPEG are left as they are stored: subsampled, and as luma and chroma. This is faster
  /// where they are resized. Rows are left out as by decode(), columns are not.
  Decoded decode_planes(const PixelWindow& window, std::uint32_t height, std::uint32_t width);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe
