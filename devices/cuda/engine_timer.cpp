#include "devices/cuda/engine_timer.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "devices/cuda/dnn_library.hpp"
#include "devices/cuda/math.hpp"
#include "devices/cuda/own_launch.hpp"

namespace troupe::cuda {
namespace {

/// Runs in a recording, of which the shortest of some launches counts.
constexpr int kRuns = 8, kLaunches = 3;
/// What takes so many times as long as the best is not measured again. A single run also contains the launch of its
/// recording.
constexpr float kHopeless = 2, kLaunchMicroseconds = 20;
/// A bf16 or f16 of 0.046 or 1.3, an f32 of 0.046.
constexpr unsigned char kNumber = 0x3d;

/// A recording that can be launched.
class Recording {
 public:
  Recording(const Gpu& gpu, StreamHandle stream, const EngineTimer::Enqueue& enqueue, int runs)
      : driver_(gpu.driver()) {
    TROUPE_CUDA(driver_, stream_begin_capture(stream, CaptureMode::thread_local_), "recording an engine of cuDNN");
    bool is_taken = true;
    GraphHandle graph = nullptr;
    try {
      for (int run = 0; is_taken && run < runs; ++run) is_taken = enqueue();
    } catch (...) {
      (void)driver_.stream_end_capture(stream, &graph);
      if (graph != nullptr) (void)driver_.graph_destroy(graph);
      throw;
    }
    const bool is_recorded = driver_.stream_end_capture(stream, &graph) == Result::success && graph != nullptr;
    if (is_taken && is_recorded && driver_.graph_instantiate_with_flags(&exec_, graph, 0) != Result::success)
      exec_ = nullptr;
    if (graph != nullptr) (void)driver_.graph_destroy(graph);
  }
  ~Recording() {
    if (exec_ != nullptr) (void)driver_.graph_exec_destroy(exec_);
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  bool ok() const noexcept { return exec_ != nullptr; }
  GraphExec exec() const noexcept { return exec_; }

 private:
  const Driver& driver_;
  GraphExec exec_ = nullptr;
};

/// Between two events around a recording; without a value: the driver does not launch it.
std::optional<float> microseconds_of(const Gpu& gpu, StreamHandle stream, const Recording& recording, EventHandle begin,
                                     EventHandle end) {
  const Driver& driver = gpu.driver();
  TROUPE_CUDA(driver, event_record(begin, stream), "the time of an engine");
  if (driver.graph_launch(recording.exec(), stream) != Result::success) return std::nullopt;
  TROUPE_CUDA(driver, event_record(end, stream), "the time of an engine");
  TROUPE_CUDA(driver, stream_synchronize(stream), "a run of an engine");
  float milliseconds = 0;
  TROUPE_CUDA(driver, event_elapsed_time(&milliseconds, begin, end), "the time of an engine");
  return milliseconds * 1000;
}

}  // namespace

bool EngineTimer::has_clock(const Gpu& gpu, StreamHandle stream) {
  const Driver& driver = gpu.driver();
  EventHandle event = nullptr;
  gpu.use();
  TROUPE_CUDA(driver, event_create(&event, 0), "an event");
  float milliseconds = 0;
  const bool has = driver.event_record(event, stream) == Result::success &&
                   driver.stream_synchronize(stream) == Result::success &&
                   driver.event_elapsed_time(&milliseconds, event, event) == Result::success;
  (void)driver.event_destroy(event);
  return has;
}

bool EngineTimer::can_measure(const DnnForm& form) noexcept { return std::holds_alternative<ConvolutionForm>(form); }

EngineTimer::EngineTimer(std::shared_ptr<const Gpu> gpu, StreamHandle stream, const DnnForm& form)
    : gpu_(std::move(gpu)), stream_(stream), form_(form), state_(gpu_, sizeof(StreamState)) {
  std::array<std::uint64_t, std::tuple_size_v<DnnPlaces>> sizes{};
  std::uint64_t all = 0;
  for (std::size_t id = 0; id < sizes.size(); ++id) all += on_a_boundary(sizes[id] = size_of(form, id));
  tensors_ = DeviceMemory{gpu_, all, /*clears=*/false};
  std::byte* at = tensors_.at();
  for (std::size_t id = 0; id < sizes.size(); ++id)
    if (sizes[id] != 0) places_[id] = std::exchange(at, at + on_a_boundary(sizes[id]));
  const Driver& driver = gpu_->driver();
  TROUPE_CUDA(driver,
              memset_d8_async(reinterpret_cast<DevicePointer>(tensors_.at()), kNumber, tensors_.size_bytes(), stream_),
              "tensors to measure engines on");
  TROUPE_CUDA(driver, event_create(&begin_, 0), "an event");
  if (const Result made = driver.event_create(&end_, 0); made != Result::success) {
    (void)driver.event_destroy(begin_);
    fail_call(driver, made, "an event");
  }
}

EngineTimer::~EngineTimer() {
  const Driver& driver = gpu_->driver();
  (void)driver.stream_synchronize(stream_);
  (void)driver.event_destroy(begin_);
  (void)driver.event_destroy(end_);
}

std::byte* EngineTimer::workspace(std::uint64_t size_bytes) {
  if (size_bytes > DnnLibrary::kMostWorkspace) return nullptr;
  try {
    if (size_bytes > workspace_.size_bytes()) workspace_ = DeviceMemory{gpu_, size_bytes, /*clears=*/false};
  } catch (const Error& error) {
    if (error.code() != Code::out_of_memory) throw;
    return nullptr;
  }
  return workspace_.at();
}

std::optional<float> EngineTimer::time_of(const Enqueue& enqueue, float best) const {
  const auto measure = [this](const Recording& recording) {
    return recording.ok() ? microseconds_of(*gpu_, stream_, recording, begin_, end_) : std::nullopt;
  };
  {
    const Recording once{*gpu_, stream_, enqueue, 1};
    if (!measure(once)) return std::nullopt;  // loads what is loaded when it first runs
    if (const auto found = measure(once); !found || *found > kHopeless * best + kLaunchMicroseconds) return found;
  }
  const Recording several{*gpu_, stream_, enqueue, kRuns};
  std::optional<float> least = measure(several);
  for (int launch = 1; least && launch < kLaunches; ++launch) least = std::min(least, measure(several));
  if (least) *least /= kRuns;
  return least;
}

// ---- Tensors ----

namespace {

/// Own kernels have biases and gradients to weights in f32.
std::uint64_t size_of(const ConvolutionForm& form, std::int64_t id) {
  const ConvolutionShape shape = shape_of(form);
  switch (id) {
    case kConvolutionImages: return shape.count_in() * bytes_of(form.type);
    case kConvolutionWeights: return shape.count_weights() * sizeof(float);
    case kConvolutionOutput: return shape.count_out() * bytes_of(form.type);
    case kConvolutionBias: return form.has_bias ? form.filters * sizeof(float) : 0;
    default: return 0;
  }
}

}  // namespace

std::uint64_t EngineTimer::size_of(const DnnForm& form, std::size_t id) const {
  const auto number = static_cast<std::int64_t>(id);
  if (const auto* const convolution = std::get_if<ConvolutionForm>(&form)) return cuda::size_of(*convolution, number);
  return 0;
}

// ---- Kernels of ours ----

template <class Args>
void EngineTimer::launch(Args& args, std::uint64_t items) const {
  launch_alone(*gpu_, stream_, state_.as<StreamState>(), args, items);
}

/// As Math has them computed, with the ReLU behind them.
template <class Args>
void EngineTimer::convolve(const ConvolutionForm& form, std::int64_t result) {
  Args args{};
  args.images_type = args.weights_type = args.gradient_type = form.type;
  args.shape = shape_of(form);
  args.images = places_[kConvolutionImages], args.weights = places_[kConvolutionWeights];
  args.gradient = places_[kConvolutionOutput];
  const bool to_weights = result == kConvolutionWeights;
  const std::array<std::uint64_t, 4> counts{0, args.shape.count_in(), args.shape.count_weights(),
                                            args.shape.count_out()};
  void* const at = const_cast<void*>(places_[static_cast<std::size_t>(result)]);
  args.to = {.at = at,
             .bias = static_cast<const float*>(places_[kConvolutionBias]),
             .partial = nullptr,
             .count = counts[static_cast<std::size_t>(result)],
             .type = to_weights ? Stored::f32 : form.type,
             .adds = form.adds ? 1U : 0U,
             .parts = parts_of<Args>(extents_of(args), gpu_->processors()),
             .scale = 1};
  if (args.to.parts > 1) args.to.partial = partial_.as<float>();
  launch(args, count_tiles(extents_of(args)) * args.to.parts * kBlockThreads);
  if (args.to.parts > 1) {
    AddPartsArgs sum{nullptr, args.to, form.filters};
    launch(sum, count_items(sum));
  }
  if (!form.has_relu) return;
  ActivateArgs relu{};
  relu.to = at, relu.from = at, relu.count = args.to.count;
  relu.curve = Curve::relu, relu.to_type = relu.from_type = form.type;
  launch(relu, relu.count);
}

std::optional<float> EngineTimer::time_of_own(float best) {
  const auto* const form = std::get_if<ConvolutionForm>(&form_);
  if (form == nullptr) return std::nullopt;
  // Products in parts have at most so many tiles.
  partial_ = DeviceMemory{gpu_, kBlocksOfProcessor * gpu_->processors() * kMostOfTile * sizeof(float),
                          /*clears=*/false};
  const auto enqueue = [&] {
    switch (form->kind) {
      case ConvolutionKind::forward: convolve<ConvolveArgs>(*form, kConvolutionOutput); break;
      case ConvolutionKind::to_images: convolve<ConvolveToImagesArgs>(*form, kConvolutionImages); break;
      case ConvolutionKind::to_weights: convolve<ConvolveToWeightsArgs>(*form, kConvolutionWeights); break;
    }
    return true;
  };
  return time_of(enqueue, best);
}

}  // namespace troupe::cuda
