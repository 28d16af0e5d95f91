#pragma once

#include <cstdint>

#include "devices/cuda/cuda_stream.hpp"

namespace troupe::cuda {

/// Where a replica's products of matrices, convolutions and sums over rows are enqueued: the one place that chooses
/// what computes them. By kernels of ours: products in as many parts as keep the processors busy.
class Math {
 public:
  /// `processors`: of the GPU; `widest`: the most columns that sum_columns() is called with.
  Math(std::uint32_t processors, std::uint64_t widest) noexcept : processors_(processors), widest_(widest) {}

  std::uint64_t scratch_bytes() const noexcept;
  /// `scratch`: of scratch_bytes(), in the GPU's memory. Work on several streams at a time needs several.
  void take_scratch(std::byte* scratch) noexcept { scratch_ = scratch; }

  /// Arguments come without parts.
  void multiply(CudaStream& stream, MultiplyArgs& args) const;
  void convolve(CudaStream& stream, ConvolveArgs& args) const;
  void convolve_to_images(CudaStream& stream, ConvolveToImagesArgs& args) const;
  void convolve_to_weights(CudaStream& stream, ConvolveToWeightsArgs& args) const;
  /// to[j] = the sum of column j, f32. `args` comes without parts.
  void sum_columns(CudaStream& stream, SumColumnsArgs& args, float* to) const;
  /// Chooses the parts of sums over columns, whose results (at most 16 bytes each) then find room in scratch().
  void cut(ColumnSums& sums) const noexcept;
  std::byte* scratch() const noexcept { return scratch_; }

 private:
  template <class Args>
  void launch(CudaStream& stream, Args& args, const ProductExtents& extents, std::uint64_t bias_width) const;

  const std::uint32_t processors_;
  const std::uint64_t widest_;
  std::byte* scratch_ = nullptr;
};

}  // namespace troupe::cuda
