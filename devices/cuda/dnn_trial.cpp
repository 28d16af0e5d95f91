#include "devices/cuda/dnn_trial.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <variant>

#include "devices/cuda/head_products.hpp"
#include "devices/cuda/own_launch.hpp"

namespace troupe::cuda {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

}  // namespace

/// The significand of bf16 has 8 bits: rounding has a relative error of at most 2^-9. TF32 has 11 in each factor.
double most_distance(Stored type, bool tf32) noexcept {
  if (type != Stored::f32) return 1e-2;
  return tf32 ? 2e-3 : 1e-5;
}

DnnTrial::DnnTrial(std::shared_ptr<const Gpu> gpu, StreamHandle stream, Run run)
    : gpu_(std::move(gpu)), stream_(stream), run_(std::move(run)), state_(gpu_, sizeof(StreamState)) {}

// Where the library did not run, kernels of ours may still use the memory.
DnnTrial::~DnnTrial() { (void)gpu_->driver().stream_synchronize(stream_); }

std::byte* DnnTrial::memory(std::uint64_t size_bytes) { return memory_.emplace_back(gpu_, size_bytes).at(); }

std::byte* DnnTrial::numbers(std::uint32_t seed, std::uint64_t count, Stored type) {
  const std::uint64_t size_bytes = count * bytes_of(type);
  auto* const values = copied_.emplace_back(gpu_, size_bytes).as<std::byte>();
  std::uint32_t state = seed;
  for (std::uint64_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;  // Numerical Recipes, section 7.1
    store(values, type, i, static_cast<float>(state >> 27U) / 8.0F - 2.0F);
  }
  std::byte* const to = memory(size_bytes);
  TROUPE_CUDA(gpu_->driver(), memcpy_htod_async(reinterpret_cast<DevicePointer>(to), values, size_bytes, stream_),
              "numbers for a trial");
  return to;
}

template <class Args>
void DnnTrial::launch(Args& args, std::uint64_t items) {
  launch_alone(*gpu_, stream_, state_.as<StreamState>(), args, items);
}

std::vector<float> DnnTrial::read(const std::byte* from, std::uint64_t count, Stored type) {
  const std::uint64_t size_bytes = count * bytes_of(type);
  const PinnedMemory copied{gpu_, size_bytes};
  const Driver& driver = gpu_->driver();
  TROUPE_CUDA(driver,
              memcpy_dtoh_async(copied.as<std::byte>(), reinterpret_cast<DevicePointer>(from), size_bytes, stream_),
              "results of a trial");
  TROUPE_CUDA(driver, stream_synchronize(stream_), "a trial on ", gpu_->name());
  std::vector<float> values(count);
  for (std::uint64_t i = 0; i < count; ++i) values[i] = load(copied.as<std::byte>(), type, i);
  return values;
}

std::uint64_t trial_bytes(const AttentionForm& form) noexcept {
  const std::uint64_t weights = std::uint64_t{form.rows} * form.heads * form.length * form.length;
  return weights * (2 * sizeof(float) + 2 * bytes_of(form.type));
}

namespace {

constexpr std::uint32_t kTriedRows = 2;

DnnForm form_to_try(AttentionForm form) {
  const auto is_large = [&form] { return trial_bytes(form) > kMostTrialBytes; };
  form.rows = std::min(form.rows, kTriedRows);
  if (is_large()) form.rows = 1;
  while (is_large() && form.heads > 1) form.heads = (form.heads + 1) / 2;
  // Keys and values begin where the queries of all heads end.
  const std::uint64_t keys_at = std::uint64_t{form.heads} * form.part * bytes_of(form.type);
  while (keys_at % form.alignment != 0) form.alignment /= 2;
  return form;
}

DnnForm form_to_try(ConvolutionForm form) {
  form.images = std::min(form.images, kTriedRows);
  return form;
}

}  // namespace

DnnForm form_to_try(const DnnForm& form) {
  return std::visit([](const auto& one) { return form_to_try(one); }, form);
}

void DnnTrial::multiply(MultiplyArgs args) { launch(args, count_tiles(args.extents) * kBlockThreads); }

double relative_distance(const std::vector<float>& a, const std::vector<float>& b) noexcept {
  double apart = 0, length = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    apart += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    length += double{b[i]} * b[i];
  }
  return apart == 0 ? 0 : std::sqrt(apart / length);
}

double DnnTrial::distance(const DnnForm& form) {
  return std::visit([this](const auto& one) { return distance_of(one); }, form);
}

// ---- Convolutions ----

namespace {

/// From [filters, channels, taps] to [filters, taps, channels].
std::vector<float> channels_last(const std::vector<float>& weights, const ConvolutionShape& s) {
  std::vector<float> moved(weights.size());
  const std::size_t channels = s.channels_of_group(), taps = s.taps();
  for (std::size_t i = 0; i < moved.size(); ++i) {
    const std::size_t filter = i / (taps * channels), tap = i / channels % taps, channel = i % channels;
    moved[i] = weights[(filter * channels + channel) * taps + tap];
  }
  return moved;
}

}  // namespace

/// `Args`: of the kernel.
template <class Args>
double DnnTrial::distance_of(const ConvolutionForm& form, std::int64_t result) {
  Args args{};
  args.images_type = args.weights_type = args.gradient_type = form.type;
  args.shape = shape_of(form);
  const std::array<std::uint64_t, 4> counts{0, args.shape.count_in(), args.shape.count_weights(),
                                            args.shape.count_out()};
  const std::uint64_t count = counts[static_cast<std::size_t>(result)];
  DnnPlaces places{};
  for (std::uint32_t id = 1; id < counts.size(); ++id) places[id] = numbers(id, counts[id], form.type);
  // The result of the kernel lies apart. It may be added to what is there.
  args.to = {.at = numbers(static_cast<std::uint32_t>(result), count, Stored::f32),
             .bias = nullptr,
             .partial = nullptr,
             .count = count,
             .type = Stored::f32,
             .adds = form.adds ? 1U : 0U,
             .parts = 1,
             .scale = 1};
  if (form.has_bias) {
    places[kConvolutionBias] = numbers(5, form.filters, form.type);
    args.to.bias = reinterpret_cast<const float*>(numbers(5, form.filters, Stored::f32));
  }
  // A kernel reads all but what it computes.
  const auto operand = [&](std::int64_t id) { return id == result ? nullptr : places[static_cast<std::size_t>(id)]; };
  args.images = operand(kConvolutionImages), args.weights = operand(kConvolutionWeights);
  args.gradient = operand(kConvolutionOutput);
  launch(args, count_tiles(extents_of(args)) * kBlockThreads);
  if (!run_(form, places)) return kNone;
  std::vector<float> own = read(static_cast<const std::byte*>(args.to.at), count, Stored::f32);
  if (form.has_relu) std::ranges::transform(own, own.begin(), [](float value) { return std::max(value, 0.0F); });
  if (form.kind == ConvolutionKind::to_weights) own = channels_last(own, args.shape);
  return relative_distance(
      read(static_cast<const std::byte*>(places[static_cast<std::size_t>(result)]), count, form.type), own);
}

double DnnTrial::distance_of(const ConvolutionForm& form) {
  if (form.kind == ConvolutionKind::forward) return distance_of<ConvolveArgs>(form, kConvolutionOutput);
  if (form.kind == ConvolutionKind::to_images) return distance_of<ConvolveToImagesArgs>(form, kConvolutionImages);
  return distance_of<ConvolveToWeightsArgs>(form, kConvolutionWeights);
}

// ---- Attention ----

bool DnnTrial::run_again(const DnnForm& form, const DnnPlaces& places, const std::byte* result, std::uint64_t count) {
  if (!run_(form, places)) return false;
  const std::vector<float> first = read(result, count, type_of(form));
  if (!run_(form, places)) return false;
  has_same_bits_ = has_same_bits_ && first == read(result, count, type_of(form));
  return true;
}

/// The tensors of attention lie as those of the layer: queries, keys and values in one.
double DnnTrial::distance_of(const AttentionForm& form) {
  const HeadProducts heads{form.rows, form.heads, form.length, std::uint64_t{form.heads} * form.part};
  const Stored type = form.type;
  const std::byte* const input = numbers(1, heads.count_input(), type);
  std::byte *const own = memory(heads.count_output() * bytes_of(type)),
                   *const found = memory(heads.count_output() * bytes_of(type)),
                   *const scores = memory(heads.count_weights() * sizeof(float)),
                   *const weights = memory(heads.count_weights() * bytes_of(type)),
                   *const log_sums = memory(heads.count_weight_rows() * sizeof(float));
  multiply(heads.product(heads.weights(scores, Stored::f32), 0, heads.of_input(input, type, 0),
                         HeadProducts::transposed(heads.of_input(input, type, 1)), heads.length(), heads.part(),
                         heads.scale()));
  SoftmaxRowsArgs softmax = heads.softmax(weights, reinterpret_cast<const float*>(scores), form.causal, type);
  launch(softmax, softmax.count_rows * kWarpThreads);
  multiply(heads.product(heads.of_output(own, type), 0, heads.weights(weights, type), heads.of_input(input, type, 2),
                         heads.part(), heads.length()));
  AttentionForm forward = form;
  forward.is_backward = false;
  DnnPlaces places{};
  for (std::uint64_t which = 0; which < 3; ++which) places[kQueries + which] = heads.of_input(input, type, which).at;
  places[kAttended] = found, places[kLogSums] = log_sums;
  if (!run_again(forward, places, found, heads.count_output())) return kNone;
  if (form.is_backward) return distance_of_gradient(form, places, weights);
  return distance(found, own, heads.count_output(), type);
}

/// `weights`: of kernels of ours.
double DnnTrial::distance_of_gradient(const AttentionForm& form, const DnnPlaces& forward, const std::byte* weights) {
  const HeadProducts heads{form.rows, form.heads, form.length, std::uint64_t{form.heads} * form.part};
  const Stored type = form.type;
  const std::byte* const gradient = numbers(2, heads.count_output(), type);
  std::byte *const own = memory(heads.count_input() * bytes_of(type)),
                   *const found = memory(heads.count_input() * bytes_of(type)),
                   *const to_weights = memory(heads.count_weights() * sizeof(float)),
                   *const to_scores = memory(heads.count_weights() * bytes_of(type));
  const Matrix to_output = heads.of_output(gradient, type), all = heads.weights(weights, type),
               slopes = heads.weights(to_scores, type);
  const auto part_of = [&](std::uint64_t which) { return heads.of_input(forward[kQueries], type, which); };
  multiply(heads.product(heads.of_input(own, type, 2), 0, HeadProducts::transposed(all), to_output, heads.part(),
                         heads.length()));
  multiply(heads.product(heads.weights(to_weights, Stored::f32), 0, to_output, HeadProducts::transposed(part_of(2)),
                         heads.length(), heads.part()));
  SoftmaxRowsBackArgs softmax =
      heads.softmax_back(to_scores, reinterpret_cast<const float*>(to_weights), weights, type);
  launch(softmax, softmax.count_rows * kWarpThreads);
  multiply(heads.product(heads.of_input(own, type, 0), 0, slopes, part_of(1), heads.part(), heads.length()));
  multiply(heads.product(heads.of_input(own, type, 1), 0, HeadProducts::transposed(slopes), part_of(0), heads.part(),
                         heads.length()));
  DnnPlaces places = forward;
  places[kToAttended] = gradient, places[kProductSums] = memory(heads.count_weight_rows() * sizeof(float));
  for (std::uint64_t which = 0; which < 3; ++which) places[kToQueries + which] = heads.of_input(found, type, which).at;
  if (!run_again(form, places, found, heads.count_input())) return kNone;
  return distance(found, own, heads.count_input(), type);
}

}  // namespace troupe::cuda
