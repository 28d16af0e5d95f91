#pragma once

#include <cstdint>
#include <memory>

#include "devices/cuda/cuda_stream.hpp"
#include "devices/cuda/product_library.hpp"

namespace troupe::cuda {

/// Memory is taken in pieces that begin on such a boundary.
constexpr std::uint64_t on_a_boundary(std::uint64_t bytes) noexcept { return (bytes + 255) / 256 * 256; }

/// What a replica's layers ask for at most.
struct MathRoom {
  std::uint64_t summed_columns = 0;  // of sum_columns()
  std::uint64_t landed_bytes = 0;    // of multiply_to_gradient(): product and sums
};

/// Where a replica's products of matrices, convolutions and sums over rows are enqueued: the one place that chooses
/// what computes them. Products by a library, where there is one and it has an algorithm; everything else by kernels of
/// ours, products in as many parts as keep the processors busy.
class Math {
 public:
  /// `library`: null: kernels of ours. Takes the library's workspace of the GPU's memory.
  Math(const std::shared_ptr<const Gpu>& gpu, ProductLibrary* library, const MathRoom& room);

  std::uint64_t scratch_bytes() const noexcept;
  /// `scratch`: of scratch_bytes(), in the GPU's memory, at a multiple of 256. As the workspace, it is for one stream
  /// at a time.
  void take_scratch(std::byte* scratch) noexcept;

  // Arguments come without parts.

  /// To memory of the replica that no other rank reads. `bf16_bias`: the bias once more, for results in bf16.
  void multiply(CudaStream& stream, MultiplyArgs& args, const std::uint16_t* bf16_bias = nullptr) const;
  /// The same, and what is below 0 becomes 0. False: nothing is done, since only a library can.
  bool multiply_with_relu(CudaStream& stream, const MultiplyArgs& args, const std::uint16_t* bf16_bias) const;
  /// To gradients, which other ranks may be reading still. `sums`: of the columns of the product's left operand, f32,
  /// times the product's factor to `sums_to`; null: none are asked for.
  void multiply_to_gradient(CudaStream& stream, MultiplyArgs& args, SumColumnsArgs* sums, float* sums_to) const;
  void convolve(CudaStream& stream, ConvolveArgs& args) const;
  void convolve_to_images(CudaStream& stream, ConvolveToImagesArgs& args) const;
  void convolve_to_weights(CudaStream& stream, ConvolveToWeightsArgs& args) const;
  /// to[j] = the sum of column j times the factor, f32. `args` comes without parts.
  void sum_columns(CudaStream& stream, SumColumnsArgs& args, float* to, const Factor& factor) const;
  /// Chooses the parts of sums over columns, whose results (at most 16 bytes each) then find room in scratch().
  void cut(ColumnSums& sums) const noexcept;
  std::byte* scratch() const noexcept { return scratch_; }

 private:
  template <class Args>
  void launch(CudaStream& stream, Args& args, const ProductExtents& extents, std::uint64_t bias_width) const;
  void multiply_here(CudaStream& stream, MultiplyArgs& args) const;
  bool multiply_by_library(CudaStream& stream, const MultiplyArgs& args, lt::Epilogue epilogue,
                           const void* vector) const;
  bool multiply_with_bias(CudaStream& stream, const MultiplyArgs& args, const std::uint16_t* bf16_bias) const;
  bool multiply_and_bring(CudaStream& stream, const MultiplyArgs& args, float* sums_to) const;
  std::uint64_t own_scratch_bytes() const noexcept;

  const std::uint32_t processors_;
  ProductLibrary* const library_;
  const MathRoom room_;
  std::byte* scratch_ = nullptr;
  std::byte* landing_ = nullptr;  // where the library's gradients wait for a kernel of ours
  DeviceMemory workspace_;        // of the library
};

}  // namespace troupe::cuda
