#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "devices/cuda/cuda_stream.hpp"
#include "devices/cuda/device_state.hpp"

namespace troupe::cuda {

/// Memory is taken in pieces that begin on such a boundary.
constexpr std::uint64_t on_a_boundary(std::uint64_t bytes) noexcept { return (bytes + 255) / 256 * 256; }

/// Of the sums of an attention's gradient, at the beginning of its scratch, when a library computes it.
constexpr std::uint64_t product_sums_bytes(std::uint64_t rows, std::uint64_t heads, std::uint64_t length) noexcept {
  return on_a_boundary(rows * heads * length * sizeof(float));
}
/// What a library needs behind them: the weights once more in 16 bits, over whole tiles, and a little for each plan.
/// Source: what cuDNN 9.19 and 9.28 ask for.
constexpr std::uint64_t attention_workspace_bytes(std::uint64_t rows, std::uint64_t heads,
                                                  std::uint64_t length) noexcept {
  const std::uint64_t down = (length + 63) / 64 * 64, across = (length + 127) / 128 * 128;
  return rows * heads * down * across * 2 + 1024;
}

/// The most that a replica's layers need.
struct MathRoom {
  std::uint64_t summed_columns = 0;  // of sum_columns()
  std::uint64_t landed_bytes = 0;    // of multiply_to_gradient(): product and sums
};

/// The libraries that a replica uses; null: kernels of ours.
struct MathLibraries {
  ProductLibrary* products = nullptr;
  DnnLibrary* dnn = nullptr;
};

/// Where a replica's products of matrices, convolutions, attention and sums over rows are enqueued: the one place that
/// chooses what computes them. A library computes products, convolutions and attention, if there is one and it has
/// an algorithm; kernels of ours compute everything else, products in as many parts as keep the processors busy.
class Math {
 public:
  /// Allocates the libraries' workspace in the GPU's memory. `owns_gradients`: as ReplicaMemory says.
  Math(const std::shared_ptr<const Gpu>& gpu, const MathLibraries& libraries, const MathRoom& room,
       bool owns_gradients);

  // Call these before the first step, with the arguments of that step: they choose how the work will be computed, and
  // allocate memory for it. For work that was not prepared the choice is made when it is first enqueued, and only that
  // memory can be used.
  void prepare(const ConvolveArgs& args, const std::uint16_t* half_bias, bool with_relu);
  void prepare(const ConvolveToImagesArgs& args);
  void prepare(const ConvolveToWeightsArgs& args, std::byte* landing);
  void prepare(const AttentionArgs& args, const AttentionBackArgs* back);

  std::uint64_t scratch_bytes() const noexcept;
  /// `scratch`: of scratch_bytes(), in the GPU's memory, at a multiple of 256. As the workspace, it is for one stream
  /// at a time. `of_layers`: that of the layers, at a multiple of 256.
  void take_scratch(std::byte* scratch, std::span<std::byte> of_layers) noexcept;

  // Arguments come without parts.

  /// To memory of the replica that no other rank reads. `half_bias`: the bias once more, for results in bf16.
  void multiply(CudaStream& stream, MultiplyArgs& args, const std::uint16_t* half_bias = nullptr) const;
  /// The same with a ReLU. `mask`: of relu_mask_bytes(), at a multiple of 256; gets a bit for each result: whether it
  /// was above 0; null: not needed. Only a library can compute this; if none can, returns false and does nothing.
  bool multiply_with_relu(CudaStream& stream, const MultiplyArgs& args, const std::uint16_t* half_bias,
                          std::byte* mask) const;
  /// Whether multiply_to_relu() can: only a library does.
  bool has_relu_gradient(const MultiplyArgs& args, const std::byte* mask) const;
  /// A product that is the gradient to what a ReLU has put out, by the ReLU's mask: gives the gradient to what the ReLU
  /// has read.
  void multiply_to_relu(CudaStream& stream, const MultiplyArgs& args, const std::byte* mask) const;
  // Products and convolutions that give gradients to weights may be computed by a library at the same time as what is
  // enqueued behind them, until CudaStream::join_aside().

  /// To gradients, which other ranks may be reading still unless the replica owns them. `sums`: of the columns of the
  /// product's left operand, f32, times the product's factor to `sums_to`; null: none are asked for.
  /// `is_last`: nothing follows that could be computed at the same time.
  void multiply_to_gradient(CudaStream& stream, MultiplyArgs& args, SumColumnsArgs* sums, float* sums_to,
                            bool is_last) const;
  void convolve(CudaStream& stream, ConvolveArgs& args, const std::uint16_t* half_bias) const;
  /// Whether convolve_with_relu() can: only a library does.
  bool has_relu(const ConvolveArgs& args, const std::uint16_t* half_bias) const;
  /// The same with a ReLU.
  void convolve_with_relu(CudaStream& stream, const ConvolveArgs& args, const std::uint16_t* half_bias) const;
  void convolve_to_images(CudaStream& stream, ConvolveToImagesArgs& args) const;
  /// `landing`: memory of the replica for the gradient in the images' type. True: it lies there, channels last, and is
  /// still to be brought to its place.
  bool convolve_to_weights(CudaStream& stream, ConvolveToWeightsArgs& args, std::byte* landing) const;
  /// `back`: the gradient that will follow; null: none will. Only a library can compute this; if none can, returns
  /// false and does nothing. The library works in the layers' scratch, behind the product sums.
  bool attend(CudaStream& stream, const AttentionArgs& args, const AttentionBackArgs* back) const;
  /// The gradient of `forward`, which was enqueued in this step.
  bool attend_back(CudaStream& stream, const AttentionArgs& forward, const AttentionBackArgs& args) const;
  /// `args` comes without parts.
  void sum_columns(CudaStream& stream, SumColumnsArgs& args) const;
  /// Chooses the parts of sums over columns, whose results (at most 16 bytes each) then find room in scratch().
  void cut(ColumnSums& sums) const noexcept;
  /// The number of the GPU's processors.
  std::uint32_t processors() const noexcept { return processors_; }
  std::byte* scratch() const noexcept { return scratch_; }
  /// Scratch memory of the layer that is being enqueued, until its function returns.
  std::byte* layer_scratch() const noexcept { return layer_scratch_.data(); }

 private:
  template <class Args>
  void launch(CudaStream& stream, Args& args, const ProductExtents& extents, std::uint64_t bias_width) const;
  void multiply_here(CudaStream& stream, MultiplyArgs& args) const;
  bool multiply_by_library(CudaStream& stream, const MultiplyArgs& args, const ProductEpilogue& epilogue,
                           Lane lane = Lane::main) const;
  bool multiply_with_bias(CudaStream& stream, const MultiplyArgs& args, const std::uint16_t* half_bias) const;
  bool multiply_in_place(CudaStream& stream, const MultiplyArgs& args, float* sums_to, Lane lane) const;
  bool multiply_and_bring(CudaStream& stream, const MultiplyArgs& args, float* sums_to) const;
  bool lands(const void* gradient, const Factor& factor) const noexcept;
  void* landing_of(const ConvolveToWeightsArgs& args, std::byte* landing) const noexcept;
  std::uint64_t own_scratch_bytes() const noexcept;
  void add_bias(CudaStream& stream, const ProductTo& to, std::uint64_t rows, std::uint64_t columns) const;
  DeviceMemory& workspace(Lane lane) noexcept { return lane == Lane::main ? workspace_ : workspace_aside_; }
  const DeviceMemory& workspace(Lane lane) const noexcept { return lane == Lane::main ? workspace_ : workspace_aside_; }
  std::byte* grow_workspace(Lane lane, std::uint64_t size_bytes);
  bool prepare(const std::optional<DnnOperation>& what, Lane lane = Lane::main);
  const DnnPlan* plan_of(const std::optional<DnnOperation>& what, Lane lane = Lane::main) const;
  bool run_by_library(CudaStream& stream, const std::optional<DnnOperation>& what, Lane lane = Lane::main) const;
  std::byte* attention_workspace(const AttentionArgs& args, std::uint64_t size_bytes) const;
  const DnnPlan* plan_of_attention(const AttentionArgs& args, const std::optional<DnnOperation>& what) const;
  bool has_attention(const AttentionArgs& args, const AttentionBackArgs* back) const;
  bool attend_by_library(CudaStream& stream, const AttentionArgs& args, const std::optional<DnnOperation>& what) const;
  bool convolve_with_bias(CudaStream& stream, const ConvolveArgs& args, const std::uint16_t* half_bias) const;

  const std::shared_ptr<const Gpu> gpu_;
  const std::uint32_t processors_;
  const MathLibraries libraries_;
  const MathRoom room_;
  const bool owns_gradients_;
  std::byte* scratch_ = nullptr;
  std::span<std::byte> layer_scratch_;
  std::byte* landing_ = nullptr;              // where the libraries' gradients wait for a kernel of ours
  DeviceMemory workspace_, workspace_aside_;  // of the libraries
};

}  // namespace troupe::cuda
