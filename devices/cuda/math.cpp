#include "devices/cuda/math.hpp"

#include <algorithm>
#include <span>

#include "devices/cuda/library_product.hpp"
#include "devices/cuda/own_launch.hpp"

namespace troupe::cuda {
namespace {

/// A part has at least so many rows: otherwise adding the parts up costs more than it gains.
constexpr std::uint64_t kLeastRows = 64;
constexpr std::uint64_t kMostSumBytes = 16;

void call_library(CudaStream& stream, LibraryCalls& library, std::span<const std::byte> what, Lane lane) {
  if (lane == Lane::main) return stream.launch_library(library, what);
  stream.aside([&] { stream.launch_library(library, what); });
}

}  // namespace

Math::Math(const std::shared_ptr<const Gpu>& gpu, const MathLibraries& libraries, const MathRoom& room,
           bool owns_gradients)
    : gpu_(gpu), processors_(gpu->processors()), libraries_(libraries), room_(room), owns_gradients_(owns_gradients) {
  if (libraries_.products == nullptr) return;
  for (const Lane lane : {Lane::main, Lane::aside})
    workspace(lane) = DeviceMemory{gpu, libraries_.products->workspace_bytes(), /*clears=*/false};
}

std::uint64_t Math::own_scratch_bytes() const noexcept {
  // Of a product in parts, whose tiles are at most the blocks; of column sums, likewise, or in one part.
  const std::uint64_t blocks = kBlocksOfProcessor * processors_;
  return on_a_boundary(std::max(blocks * kMostOfTile * sizeof(float),
                                std::max(room_.summed_columns, blocks * kSummedColumns) * kMostSumBytes));
}

std::uint64_t Math::scratch_bytes() const noexcept {
  const bool has_library = libraries_.products != nullptr || libraries_.dnn != nullptr;
  return own_scratch_bytes() + (has_library ? room_.landed_bytes : 0);
}

void Math::take_scratch(std::byte* scratch, std::span<std::byte> of_layers) noexcept {
  scratch_ = scratch;
  layer_scratch_ = of_layers;
  landing_ = scratch_ + own_scratch_bytes();
}

template <class Args>
void Math::launch(CudaStream& stream, Args& args, const ProductExtents& extents, std::uint64_t bias_width) const {
  const std::uint64_t tiles = count_tiles(extents);
  const bool is_dense = args.to.count == extents.batches * extents.rows * extents.columns;
  args.to.parts = is_dense ? parts_of<Args>(extents, processors_) : 1;
  args.to.partial = args.to.parts > 1 ? reinterpret_cast<float*>(scratch_) : nullptr;
  stream.launch(args, tiles * args.to.parts * kBlockThreads);
  if (args.to.parts == 1) return;
  AddPartsArgs sum{nullptr, args.to, bias_width};
  stream.launch(sum, count_items(sum));
}

void Math::multiply_here(CudaStream& stream, MultiplyArgs& args) const {
  const std::uint64_t columns = args.extents.columns;
  // Results that lie apart, as those of a head among others, are not added up from parts.
  args.to.count = args.extents.batches == 1 && args.place.rows == columns ? args.extents.rows * columns : 0;
  launch(stream, args, args.extents, columns);
}

/// False: the library cannot, and nothing is done.
bool Math::multiply_by_library(CudaStream& stream, const MultiplyArgs& args, const ProductEpilogue& epilogue,
                               Lane lane) const {
  if (libraries_.products == nullptr) return false;
  auto product = library_product(args);
  if (!product) return false;
  product->form.epilogue = epilogue;
  const ProductPlan* const plan = libraries_.products->plan(product->form);
  if (plan == nullptr) return false;
  for (std::uint32_t c = 0; c < product->calls; ++c) {
    const ProductCall call{.plan = plan,
                           .a = static_cast<const std::byte*>(product->a) + c * product->step_a,
                           .b = static_cast<const std::byte*>(product->b) + c * product->step_b,
                           .d = static_cast<std::byte*>(product->d) + c * product->step_d,
                           .workspace = workspace(lane).at(),
                           .alpha = args.to.scale,
                           .beta = args.to.adds != 0 ? 1.0F : 0.0F};
    call_library(stream, *libraries_.products, std::as_bytes(std::span{&call, 1}), lane);
  }
  return true;
}

namespace {

/// The bias in the type of the result, as a library adds it; null: there is none in that type.
const void* bias_for(const ProductTo& to, const std::uint16_t* half_bias) noexcept {
  if (to.type != Stored::f32) return half_bias;
  return to.bias;
}

}  // namespace

/// Where the library does not add the bias itself, a kernel of ours does.
bool Math::multiply_with_bias(CudaStream& stream, const MultiplyArgs& args, const std::uint16_t* half_bias) const {
  if (const void* const bias = bias_for(args.to, half_bias);
      bias != nullptr && multiply_by_library(stream, args, {lt::Epilogue::bias, bias}))
    return true;
  if (!multiply_by_library(stream, args, {})) return false;
  add_bias(stream, args.to, args.extents.rows, args.extents.columns);
  return true;
}

void Math::add_bias(CudaStream& stream, const ProductTo& to, std::uint64_t rows, std::uint64_t columns) const {
  AddRepeatedArgs add{nullptr, to.at, to.at, to.bias, rows * columns, columns, to.type, to.type, Stored::f32, 0};
  stream.launch(add, add.count);
}

void Math::multiply(CudaStream& stream, MultiplyArgs& args, const std::uint16_t* half_bias) const {
  const bool is_done =
      args.to.bias == nullptr ? multiply_by_library(stream, args, {}) : multiply_with_bias(stream, args, half_bias);
  if (!is_done) multiply_here(stream, args);
}

bool Math::multiply_with_relu(CudaStream& stream, const MultiplyArgs& args, const std::uint16_t* half_bias,
                              std::byte* mask) const {
  using lt::Epilogue;
  if (args.to.bias == nullptr)
    return multiply_by_library(stream, args, {mask == nullptr ? Epilogue::relu : Epilogue::relu_mask, nullptr, mask});
  const void* const bias = bias_for(args.to, half_bias);
  const Epilogue kind = mask == nullptr ? Epilogue::relu_bias : Epilogue::relu_bias_mask;
  return bias != nullptr && multiply_by_library(stream, args, {kind, bias, mask});
}

bool Math::has_relu_gradient(const MultiplyArgs& args, const std::byte* mask) const {
  if (libraries_.products == nullptr) return false;
  auto product = library_product(args);
  if (!product) return false;
  product->form.epilogue = {lt::Epilogue::relu_gradient, nullptr, mask};
  return libraries_.products->plan(product->form) != nullptr;
}

void Math::multiply_to_relu(CudaStream& stream, const MultiplyArgs& args, const std::byte* mask) const {
  (void)multiply_by_library(stream, args, {lt::Epilogue::relu_gradient, nullptr, mask});
}

// A library's product does not know whether the stream has failed (product_library.hpp), and other ranks may be reading
// the gradients of the step before when it has. So it lands in memory of the replica, from which a kernel of ours,
// which knows, brings it to its place, times the factor. Where the replica owns its gradients and there is no factor,
// the library writes them itself, unless they lie at odd addresses, at which its kernels are slow.

bool Math::lands(const void* gradient, const Factor& factor) const noexcept {
  constexpr std::uintptr_t kAlignment = 16;
  return !owns_gradients_ || factor.at != nullptr || reinterpret_cast<std::uintptr_t>(gradient) % kAlignment != 0;
}

/// False: the library cannot, and nothing is done.
bool Math::multiply_in_place(CudaStream& stream, const MultiplyArgs& args, float* sums_to, Lane lane) const {
  const auto epilogue = sums_to == nullptr ? lt::Epilogue::none : lt::Epilogue::sums_of_b;
  return multiply_by_library(stream, args, {epilogue, sums_to}, lane);
}

/// Likewise.
bool Math::multiply_and_bring(CudaStream& stream, const MultiplyArgs& args, float* sums_to) const {
  const std::uint64_t count = args.extents.rows * args.extents.columns;
  std::byte* const sums = sums_to == nullptr ? nullptr : landing_ + on_a_boundary(count * sizeof(float));
  MultiplyArgs landing = args;
  landing.to.at = landing_;
  if (!multiply_in_place(stream, landing, reinterpret_cast<float*>(sums), Lane::main)) return false;
  const auto bring = [&](void* to, const void* from, std::uint64_t size) {
    MoveColumnsArgs move{nullptr, {to, Stored::f32, 0}, from, 1, size, 0, size, 0, size, Stored::f32,
                         0,       args.to.factor};
    stream.launch(move, size);
  };
  bring(args.to.at, landing_, count);
  if (sums != nullptr) bring(sums_to, sums, args.extents.rows);
  return true;
}

void Math::multiply_to_gradient(CudaStream& stream, MultiplyArgs& args, SumColumnsArgs* sums, float* sums_to,
                                bool is_last) const {
  const auto by_library = [&](float* to) {
    const bool lands_first = lands(args.to.at, args.to.factor) || (to != nullptr && lands(to, args.to.factor));
    return lands_first ? multiply_and_bring(stream, args, to)
                       : multiply_in_place(stream, args, to, is_last ? Lane::main : Lane::aside);
  };
  if (sums != nullptr && by_library(sums_to)) return;
  if (!by_library(nullptr)) multiply_here(stream, args);
  if (sums == nullptr) return;
  sums->to = sums_to, sums->factor = args.to.factor;
  sum_columns(stream, *sums);
}

// ---- Convolutions ----

namespace {

std::optional<DnnOperation> convolution_with_relu(const ConvolveArgs& args, const std::uint16_t* half_bias) {
  const void* const bias = args.to.bias == nullptr ? nullptr : bias_for(args.to, half_bias);
  if (bias == nullptr && args.to.bias != nullptr) return std::nullopt;
  return dnn_operation(args, bias, true);
}

}  // namespace

/// Null: so much is not left. What needs less may still be found.
std::byte* Math::grow_workspace(Lane lane, std::uint64_t size_bytes) {
  DeviceMemory& memory = workspace(lane);
  if (size_bytes <= memory.size_bytes()) return memory.at();
  if (size_bytes > DnnLibrary::kMostWorkspace) return nullptr;
  try {
    memory = DeviceMemory{gpu_, size_bytes, /*clears=*/false};
  } catch (const Error& error) {
    if (error.code() != Code::out_of_memory) throw;
    return nullptr;
  }
  return memory.at();
}

/// Whether a library has a plan, with as much memory as that takes.
bool Math::prepare(const std::optional<DnnOperation>& what, Lane lane) {
  if (libraries_.dnn == nullptr || !what) return false;
  return libraries_.dnn->plan(*what, [&](std::uint64_t size_bytes) { return grow_workspace(lane, size_bytes); }) !=
         nullptr;
}

void Math::prepare(const ConvolveArgs& args, const std::uint16_t* half_bias, bool with_relu) {
  if (with_relu && prepare(convolution_with_relu(args, half_bias))) return;
  const void* const bias = args.to.bias == nullptr ? nullptr : bias_for(args.to, half_bias);
  if (bias != nullptr && prepare(dnn_operation(args, bias, false))) return;
  (void)prepare(dnn_operation(args, nullptr, false));
}
void Math::prepare(const ConvolveToImagesArgs& args) { (void)prepare(dnn_operation(args)); }
void Math::prepare(const ConvolveToWeightsArgs& args, std::byte* landing) {
  (void)prepare(dnn_operation(args, landing_of(args, landing)), Lane::aside);
}

/// Null: the library cannot.
const DnnPlan* Math::plan_of(const std::optional<DnnOperation>& what, Lane lane) const {
  if (libraries_.dnn == nullptr || !what) return nullptr;
  const DeviceMemory& memory = workspace(lane);
  const Workspace taken = [&](std::uint64_t size_bytes) {
    return size_bytes <= memory.size_bytes() ? memory.at() : nullptr;
  };
  return libraries_.dnn->plan_in_step(*what, taken);
}

/// False: the library cannot, and nothing is done.
bool Math::run_by_library(CudaStream& stream, const std::optional<DnnOperation>& what, Lane lane) const {
  const DnnPlan* const plan = plan_of(what, lane);
  if (plan == nullptr) return false;
  const DnnCall call{plan, what->places, workspace(lane).at()};
  call_library(stream, *libraries_.dnn, std::as_bytes(std::span{&call, 1}), lane);
  return true;
}

/// As multiply_with_bias().
bool Math::convolve_with_bias(CudaStream& stream, const ConvolveArgs& args, const std::uint16_t* half_bias) const {
  if (const void* const bias = bias_for(args.to, half_bias);
      bias != nullptr && run_by_library(stream, dnn_operation(args, bias, false)))
    return true;
  if (!run_by_library(stream, dnn_operation(args, nullptr, false))) return false;
  add_bias(stream, args.to, args.shape.count_out() / args.shape.filters, args.shape.filters);
  return true;
}

void Math::convolve(CudaStream& stream, ConvolveArgs& args, const std::uint16_t* half_bias) const {
  const bool is_done = args.to.bias == nullptr ? run_by_library(stream, dnn_operation(args, nullptr, false))
                                               : convolve_with_bias(stream, args, half_bias);
  if (is_done) return;
  args.to.count = args.shape.count_out();
  launch(stream, args, extents_of(args), args.shape.filters);
}

bool Math::has_relu(const ConvolveArgs& args, const std::uint16_t* half_bias) const {
  return plan_of(convolution_with_relu(args, half_bias)) != nullptr;
}

void Math::convolve_with_relu(CudaStream& stream, const ConvolveArgs& args, const std::uint16_t* half_bias) const {
  (void)run_by_library(stream, convolution_with_relu(args, half_bias));
}

void Math::convolve_to_images(CudaStream& stream, ConvolveToImagesArgs& args) const {
  if (run_by_library(stream, dnn_operation(args))) return;
  args.to.count = args.shape.count_in();
  launch(stream, args, extents_of(args), 0);
}

/// Where a library writes a gradient. Its order of weights is channels last, as is that of images, so a gradient can be
/// written in its place where both orders are one.
void* Math::landing_of(const ConvolveToWeightsArgs& args, std::byte* landing) const noexcept {
  const bool fits = args.images_type == Stored::f32 && (args.shape.taps() == 1 || args.shape.channels_of_group() == 1);
  return fits && !lands(args.to.at, args.to.factor) ? static_cast<std::byte*>(args.to.at) : landing;
}

/// As multiply_to_gradient().
bool Math::convolve_to_weights(CudaStream& stream, ConvolveToWeightsArgs& args, std::byte* landing) const {
  void* const to = landing_of(args, landing);
  if (run_by_library(stream, dnn_operation(args, to), Lane::aside)) return to == landing;
  args.to.count = args.shape.count_weights();
  launch(stream, args, extents_of(args), 0);
  return false;
}

// ---- Attention ----

/// A library's plans for attention need as much memory as kernels of ours, which then have nothing there.
std::byte* Math::attention_workspace(const AttentionArgs& args, std::uint64_t size_bytes) const {
  const std::uint64_t before = product_sums_bytes(args.rows, args.heads, args.length);
  return before + size_bytes <= layer_scratch_.size() ? layer_scratch_.data() + before : nullptr;
}

void Math::prepare(const AttentionArgs& args, const AttentionBackArgs* back) {
  if (libraries_.dnn == nullptr) return;
  const auto plan = [&](const std::optional<DnnOperation>& what) {
    if (!what) return false;
    return libraries_.dnn->plan(*what, [&](std::uint64_t size) { return attention_workspace(args, size); }) != nullptr;
  };
  if (back != nullptr && !dnn_operation(args, *back)) return;
  if (plan(dnn_operation(args)) && back != nullptr) (void)plan(dnn_operation(args, *back));
}

const DnnPlan* Math::plan_of_attention(const AttentionArgs& args, const std::optional<DnnOperation>& what) const {
  if (libraries_.dnn == nullptr || !what) return nullptr;
  return libraries_.dnn->plan_in_step(*what, [&](std::uint64_t size) { return attention_workspace(args, size); });
}

/// Whether a library computes both attention and its gradient: what one of them keeps is of no use to kernels of ours.
bool Math::has_attention(const AttentionArgs& args, const AttentionBackArgs* back) const {
  return (back == nullptr || plan_of_attention(args, dnn_operation(args, *back)) != nullptr) &&
         plan_of_attention(args, dnn_operation(args)) != nullptr;
}

bool Math::attend_by_library(CudaStream& stream, const AttentionArgs& args,
                             const std::optional<DnnOperation>& what) const {
  const DnnPlan* const plan = plan_of_attention(args, what);
  const DnnCall call{plan, what->places, attention_workspace(args, plan->workspace_bytes)};
  stream.launch_library(*libraries_.dnn, std::as_bytes(std::span{&call, 1}));
  return true;
}

bool Math::attend(CudaStream& stream, const AttentionArgs& args, const AttentionBackArgs* back) const {
  return has_attention(args, back) && attend_by_library(stream, args, dnn_operation(args));
}

bool Math::attend_back(CudaStream& stream, const AttentionArgs& forward, const AttentionBackArgs& args) const {
  return has_attention(forward, &args) && attend_by_library(stream, forward, dnn_operation(forward, args));
}

void Math::cut(ColumnSums& sums) const noexcept {
  sums.parts = 1;
  const std::uint64_t across = std::max<std::uint64_t>(count_tiles(sums), 1);
  if (across > kMostArrivals) return;
  const std::uint64_t most = std::max<std::uint64_t>(sums.count_rows / kLeastRows, 1);
  sums.parts =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kBlocksOfProcessor * processors_ / across, 1, most));
}

void Math::sum_columns(CudaStream& stream, SumColumnsArgs& args) const {
  cut(args.sums);
  args.partial = reinterpret_cast<SlopeSums*>(scratch_);
  stream.launch(args, count_tiles(args.sums) * kBlockThreads);
}

}  // namespace troupe::cuda
