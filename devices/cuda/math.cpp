#include "devices/cuda/math.hpp"

#include <algorithm>
#include <span>

#include "devices/cuda/library_product.hpp"

namespace troupe::cuda {
namespace {

/// Blocks that a processor is to have, at least, where work is cut into parts for it.
constexpr std::uint64_t kBlocksOfProcessor = 2;
/// A part has at least so many terms, or rows: otherwise adding the parts up costs more than it gains.
constexpr std::uint64_t kLeastTerms = 256, kLeastRows = 64;
constexpr std::uint64_t kMostSumBytes = 16;

}  // namespace

Math::Math(const std::shared_ptr<const Gpu>& gpu, ProductLibrary* library, const MathRoom& room)
    : processors_(gpu->processors()), library_(library), room_(room) {
  if (library_ != nullptr) workspace_ = DeviceMemory{gpu, library_->workspace_bytes(), /*clears=*/false};
}

std::uint64_t Math::own_scratch_bytes() const noexcept {
  // Of a product in parts, whose tiles are at most the blocks; of column sums, likewise, or in one part.
  const std::uint64_t blocks = kBlocksOfProcessor * processors_;
  return on_a_boundary(std::max(blocks * kTileSide * kTileSide * sizeof(float),
                                std::max(room_.summed_columns, blocks * kSummedColumns) * kMostSumBytes));
}

std::uint64_t Math::scratch_bytes() const noexcept {
  return own_scratch_bytes() + (library_ == nullptr ? 0 : room_.landed_bytes);
}

void Math::take_scratch(std::byte* scratch) noexcept {
  scratch_ = scratch;
  landing_ = scratch_ + own_scratch_bytes();
}

template <class Args>
void Math::launch(CudaStream& stream, Args& args, const ProductExtents& extents, std::uint64_t bias_width) const {
  const std::uint64_t tiles = count_tiles(extents), most = std::max<std::uint64_t>(extents.inner / kLeastTerms, 1);
  const bool is_dense = args.to.count == extents.batches * extents.rows * extents.columns;
  if (tiles != 0 && is_dense)
    args.to.parts =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kBlocksOfProcessor * processors_ / tiles, 1, most));
  else
    args.to.parts = 1;
  // Rounding to whole stretches may leave the last parts without any.
  const std::uint64_t terms = terms_of_part(extents, args.to.parts);
  if (args.to.parts > 1) args.to.parts = static_cast<std::uint32_t>((extents.inner + terms - 1) / terms);
  args.to.partial = args.to.parts > 1 ? reinterpret_cast<float*>(scratch_) : nullptr;
  stream.launch(args, tiles * args.to.parts * kBlockThreads);
  if (args.to.parts == 1) return;
  AddPartsArgs sum{nullptr, args.to, bias_width};
  stream.launch(sum, args.to.count);
}

void Math::multiply_here(CudaStream& stream, MultiplyArgs& args) const {
  const std::uint64_t columns = args.extents.columns;
  // Results that lie apart, as those of a head among others, are not added up from parts.
  args.to.count = args.extents.batches == 1 && args.place.rows == columns ? args.extents.rows * columns : 0;
  launch(stream, args, args.extents, columns);
}

/// False: the library cannot, and nothing is done.
bool Math::multiply_by_library(CudaStream& stream, const MultiplyArgs& args, lt::Epilogue epilogue,
                               const void* vector) const {
  if (library_ == nullptr) return false;
  auto product = library_product(args);
  if (!product) return false;
  product->form.epilogue = epilogue, product->form.vector = vector;
  const ProductPlan* const plan = library_->plan(product->form);
  if (plan == nullptr) return false;
  for (std::uint32_t c = 0; c < product->calls; ++c) {
    const ProductCall call{.plan = plan,
                           .a = static_cast<const std::byte*>(product->a) + c * product->step_a,
                           .b = static_cast<const std::byte*>(product->b) + c * product->step_b,
                           .d = static_cast<std::byte*>(product->d) + c * product->step_d,
                           .workspace = workspace_.at(),
                           .alpha = args.to.scale,
                           .beta = args.to.adds != 0 ? 1.0F : 0.0F};
    stream.launch_library(*library_, std::as_bytes(std::span{&call, 1}));
  }
  return true;
}

namespace {

/// The bias in the type of the result, as a library adds it; null: there is none in that type.
const void* bias_for(const MultiplyArgs& args, const std::uint16_t* bf16_bias) noexcept {
  if (args.to.type != Stored::f32) return bf16_bias;
  return args.to.bias;
}

}  // namespace

/// Where the library does not add the bias itself, a kernel of ours does.
bool Math::multiply_with_bias(CudaStream& stream, const MultiplyArgs& args, const std::uint16_t* bf16_bias) const {
  if (const void* const bias = bias_for(args, bf16_bias);
      bias != nullptr && multiply_by_library(stream, args, lt::Epilogue::bias, bias))
    return true;
  if (!multiply_by_library(stream, args, lt::Epilogue::none, nullptr)) return false;
  const std::uint64_t columns = args.extents.columns, count = args.extents.rows * columns;
  AddRepeatedArgs add{nullptr, args.to.at,   args.to.at,   args.to.bias, count,
                      columns, args.to.type, args.to.type, Stored::f32,  0};
  stream.launch(add, count);
  return true;
}

void Math::multiply(CudaStream& stream, MultiplyArgs& args, const std::uint16_t* bf16_bias) const {
  const bool is_done = args.to.bias == nullptr ? multiply_by_library(stream, args, lt::Epilogue::none, nullptr)
                                               : multiply_with_bias(stream, args, bf16_bias);
  if (!is_done) multiply_here(stream, args);
}

bool Math::multiply_with_relu(CudaStream& stream, const MultiplyArgs& args, const std::uint16_t* bf16_bias) const {
  if (args.to.bias == nullptr) return multiply_by_library(stream, args, lt::Epilogue::relu, nullptr);
  const void* const bias = bias_for(args, bf16_bias);
  return bias != nullptr && multiply_by_library(stream, args, lt::Epilogue::relu_bias, bias);
}

// A library's product does not know whether the stream has failed (product_library.hpp), and other ranks may be reading
// the gradients of the step before when it has. So it lands in memory of the replica, from which a kernel of ours,
// which knows, brings it to its place. False: the library cannot, and nothing is done.
bool Math::multiply_and_bring(CudaStream& stream, const MultiplyArgs& args, float* sums_to) const {
  if (library_ == nullptr) return false;
  const std::uint64_t count = args.extents.rows * args.extents.columns;
  std::byte* const sums = sums_to == nullptr ? nullptr : landing_ + on_a_boundary(count * sizeof(float));
  MultiplyArgs landing = args;
  landing.to.at = landing_;
  const auto epilogue = sums == nullptr ? lt::Epilogue::none : lt::Epilogue::sums_of_b;
  if (!multiply_by_library(stream, landing, epilogue, sums)) return false;
  const auto bring = [&](void* to, const void* from, std::uint64_t size) {
    MoveColumnsArgs move{nullptr, {to, Stored::f32, 0}, from, 1, size, 0, size, 0, size, Stored::f32,
                         0,       args.to.factor};
    stream.launch(move, size);
  };
  bring(args.to.at, landing_, count);
  if (sums != nullptr) bring(sums_to, sums, args.extents.rows);
  return true;
}

void Math::multiply_to_gradient(CudaStream& stream, MultiplyArgs& args, SumColumnsArgs* sums, float* sums_to) const {
  if (sums != nullptr && multiply_and_bring(stream, args, sums_to)) return;
  if (!multiply_and_bring(stream, args, nullptr)) multiply_here(stream, args);
  if (sums != nullptr) sum_columns(stream, *sums, sums_to, args.to.factor);
}

void Math::convolve(CudaStream& stream, ConvolveArgs& args) const {
  args.to.count = args.shape.count_out();
  launch(stream, args, extents_of(args), args.shape.filters);
}

void Math::convolve_to_images(CudaStream& stream, ConvolveToImagesArgs& args) const {
  args.to.count = args.shape.count_in();
  launch(stream, args, extents_of(args), 0);
}

void Math::convolve_to_weights(CudaStream& stream, ConvolveToWeightsArgs& args) const {
  args.to.count = args.shape.count_weights();
  launch(stream, args, extents_of(args), 0);
}

void Math::cut(ColumnSums& sums) const noexcept {
  sums.parts = 1;
  const std::uint64_t across = std::max<std::uint64_t>(count_tiles(sums), 1);
  const std::uint64_t most = std::max<std::uint64_t>(sums.count_rows / kLeastRows, 1);
  sums.parts =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kBlocksOfProcessor * processors_ / across, 1, most));
}

void Math::sum_columns(CudaStream& stream, SumColumnsArgs& args, float* to, const Factor& factor) const {
  cut(args.sums);
  args.partial = reinterpret_cast<float*>(scratch_);
  stream.launch(args, count_tiles(args.sums) * kBlockThreads);
  AddPartsArgs sum{};
  sum.to = {.at = to,
            .bias = nullptr,
            .partial = args.partial,
            .count = args.sums.count_columns,
            .type = Stored::f32,
            .adds = 0,
            .parts = args.sums.parts,
            .scale = 1,
            .factor = factor};
  stream.launch(sum, sum.to.count);
}

}  // namespace troupe::cuda
