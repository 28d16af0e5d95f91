#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "devices/cuda/descriptors.hpp"
#include "devices/cuda/kernels/pools.hpp"

namespace troupe::cuda {

/// A pool, or the gradient to its images, without its addresses. All tensors but the index have one type. Images are
/// [images, height, width, channels], the output likewise. The index has a byte for each element of the output: where
/// in its window, row by row, the largest element is, the first one of several. A max pool writes it for its gradient,
/// which reads it.
struct PoolForm {
  PoolKind kind = PoolKind::max;
  bool is_backward = false, has_index = false;
  Stored type = Stored::f32;
  std::uint32_t images = 0, height = 0, width = 0, channels = 0, out_height = 0, out_width = 0;
  std::uint32_t kernel_height = 0, kernel_width = 0, stride_height = 1, stride_width = 1;
  std::uint32_t padding_height = 0, padding_width = 0;
  std::uint32_t alignment = 0;  // the least of the addresses: a power of two, at most 256
  friend auto operator<=>(const PoolForm&, const PoolForm&) = default;
};

// Ids of its tensors; of a gradient the images and the output are gradients, too.
inline constexpr std::int64_t kPoolImages = 1, kPoolOutput = 2, kPoolIndex = 3;

/// One line that is another one for each form.
std::string text_of(const PoolForm& form);
std::vector<dnn::Descriptor> operations_of(const PoolForm& form, Descriptors& made);
/// Whether places in the pool's windows fit into an index.
bool fits_index(const PoolShape& shape) noexcept;

}  // namespace troupe::cuda
