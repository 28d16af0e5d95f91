#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::cpu {

/// An image [height, width, channels] of which windows give an image of half the size. Windows of 2 x 2 do not overlap:
/// a last row or column that is in none counts for nothing. Others are of 3 x 3, with a stride of 2 and a padding of 1.
struct PooledImage {
  std::size_t height = 0, width = 0, channels = 0;
  bool relu = false;      // behind the forward pass
  bool overlaps = false;  // windows of 3 x 3

  std::size_t output_height() const noexcept { return overlaps ? (height + 1) / 2 : height / 2; }
  std::size_t output_width() const noexcept { return overlaps ? (width + 1) / 2 : width / 2; }
  std::size_t input_elements() const noexcept { return height * width * channels; }
  std::size_t output_elements() const noexcept { return output_height() * output_width() * channels; }
};

/// Max pools of one image, f32 or bf16 (`Element`), for one kind of windows. Of equal elements the first one of a
/// window is chosen. Arrays need no alignment.
template <class Element>
struct MaxPoolKernels {
  const char* name;
  /// Words that note which element of each window was the largest: two bits for each output element, or where windows
  /// overlap a byte.
  std::size_t (*choice_words)(const PooledImage& of);
  void (*forward)(const PooledImage& of, const Element* image, Element* to, std::uint16_t* choices);
  /// From the gradient to the output to that of the input, every element of which is written.
  void (*backward)(const PooledImage& of, const Element* gradient, const std::uint16_t* choices, Element* to);

  static constexpr std::size_t kLeastChannelsOfOverlapping = 16;
};

#if defined(TROUPE_KERNELS_X86)
extern const MaxPoolKernels<float> kAvx2MaxPool;
extern const MaxPoolKernels<float> kAvx512MaxPool;
extern const MaxPoolKernels<std::uint16_t> kAvx512Bf16MaxPool;
extern const MaxPoolKernels<float> kAvx2OverlappingMaxPool;
extern const MaxPoolKernels<float> kAvx512OverlappingMaxPool;
#endif

/// All that this machine can execute and max_cpu_isa() allows, the narrowest first.
template <class Element>
std::vector<const MaxPoolKernels<Element>*> usable_max_pools();
std::vector<const MaxPoolKernels<float>*> usable_overlapping_max_pools();

}  // namespace troupe::cpu
