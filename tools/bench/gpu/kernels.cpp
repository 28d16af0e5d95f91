#include "tools/bench/gpu/kernels.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "devices/cuda/stream_lanes.hpp"
#include "runtime/base/clock.hpp"

namespace troupe::bench {
namespace {

using namespace cuda;

constexpr std::uint64_t kPinnedBytes = 65536;

std::shared_ptr<const Gpu> open_gpu(const GpuCase& what) {
  std::string why;
  const std::optional<Driver> driver = Driver::load(why, what.driver.c_str());
  TROUPE_CHECK(driver.has_value(), Code::environment, "there is no usable CUDA driver (", why, ")");
  TROUPE_CUDA(*driver, init(0), "the CUDA driver cannot start");
  return std::make_shared<const Gpu>(*driver, static_cast<int>(what.ordinal));
}

/// A stream with memory of zeros, in which the kernels' tensors lie one behind the other.
class KernelTimes {
 public:
  explicit KernelTimes(const GpuCase& what)
      : what_(what),
        gpu_(open_gpu(what)),
        stream_(gpu_, 0),
        state_(gpu_, sizeof(StreamState)),
        memory_(gpu_, std::uint64_t{what.mib} << 23),  // eight tensors of the size that is asked for
        pinned_(gpu_, kPinnedBytes) {}

  /// From the beginning again.
  void begin() { taken_ = 0; }
  template <class T>
  T* take(std::uint64_t count) {
    T* const at = memory_.as<T>(taken_);
    taken_ += (count * sizeof(T) + 255) / 256 * 256;
    TROUPE_CHECK(taken_ <= memory_.size_bytes(), Code::invalid, "--mib ", what_.mib, " is too small: take 32 or more");
    return at;
  }
  void* take(std::uint64_t count, Stored type) { return take<std::byte>(count * bytes_of(type)); }
  template <class T>
  T* pinned() {
    return pinned_.as<T>();
  }
  template <class T>
  void write(T* to, const std::vector<T>& values) {
    TROUPE_CHECK(values.size() * sizeof(T) <= kPinnedBytes, Code::invalid, "too many numbers for kernels");
    std::ranges::copy(values, pinned_.as<T>());
    TROUPE_CUDA(gpu_->driver(),
                memcpy_htod_async(reinterpret_cast<DevicePointer>(to), pinned_.as<T>(), values.size() * sizeof(T),
                                  stream_.handle()),
                "numbers for kernels");
    finish();
  }
  std::uint32_t processors() const { return gpu_->processors(); }

  /// `items`: what threads divide among them; `bytes`: that the kernel must read and write.
  template <class Args>
  void time(const std::string& name, std::uint64_t bytes, std::uint64_t items, Args args) {
    if constexpr (requires { args.stream; }) args.stream = state_.as<StreamState>();
    const auto blocks = static_cast<unsigned>(
        std::clamp<std::uint64_t>((items + kBlockThreads - 1) / kBlockThreads, 1, 8 * gpu_->processors()));
    const GraphExec graph = record([&] {
      void* arguments = &args;
      TROUPE_CUDA(gpu_->driver(),
                  launch_kernel(gpu_->function(kKernelOf<Args>), blocks, 1, 1, kBlockThreads, 1, 1, 0, stream_.handle(),
                                &arguments, nullptr),
                  "a kernel on ", gpu_->name());
    });
    std::vector<double> us, rates;
    for (std::uint32_t round = 0; round <= what_.rounds; ++round) {
      const auto begun = Clock::now();
      TROUPE_CUDA(gpu_->driver(), graph_launch(graph, stream_.handle()), "kernels on ", gpu_->name());
      finish();
      const double took = std::chrono::duration<double, std::micro>(Clock::now() - begun).count() / what_.repeats;
      if (round == 0) continue;  // the first one brings the code to the processors
      us.push_back(took);
      rates.push_back(static_cast<double>(bytes) / took / 1000);
    }
    (void)gpu_->driver().graph_exec_destroy(graph);
    const auto print = [&](const char* unit, const std::vector<double>& values) {
      const nlohmann::ordered_json line{{"bench", "gpu"}, {"impl", "cuda"}, {"case", "kernel " + name},
                                        {"bytes", bytes}, {"unit", unit},   {"v", values}};
      std::cout << line.dump() << std::endl;
    };
    print("us", us);
    if (bytes != 0) print("GB/s", rates);
  }

 private:
  void finish() { TROUPE_CUDA(gpu_->driver(), stream_synchronize(stream_.handle()), "kernels on ", gpu_->name()); }

  /// All launches of a round as one graph, which leaves the host's time out.
  GraphExec record(const std::function<void()>& launch) {
    const Driver& driver = gpu_->driver();
    GraphHandle graph = nullptr;
    GraphExec exec = nullptr;
    TROUPE_CUDA(driver, stream_begin_capture(stream_.handle(), CaptureMode::thread_local_), "recording kernels");
    for (std::uint32_t i = 0; i < what_.repeats; ++i) launch();
    TROUPE_CUDA(driver, stream_end_capture(stream_.handle(), &graph), "recording kernels");
    TROUPE_CUDA(driver, graph_instantiate_with_flags(&exec, graph, 0), "recording kernels");
    (void)driver.graph_destroy(graph);
    return exec;
  }

  const GpuCase& what_;
  const std::shared_ptr<const Gpu> gpu_;
  const DriverStream stream_;
  const DeviceMemory state_, memory_;
  const PinnedMemory pinned_;
  std::uint64_t taken_ = 0;
};

std::string of(const char* name, Stored type, std::initializer_list<std::uint64_t> extents) {
  std::string said = text(name, type == Stored::f32 ? " f32 [" : " bf16 [");
  for (const std::uint64_t extent : extents) said += text(extent, extent == *(extents.end() - 1) ? "]" : ", ");
  return said;
}

void time_update(KernelTimes& times, RuleKind kind, std::uint64_t count, bool has_copy) {
  times.begin();
  UpdateArgs args{};
  auto* const total = times.take<StepSums>(1);
  times.write(total, {StepSums{.samples = 1}});
  args.parameters = times.take<float>(count), args.count = count;
  for (std::size_t slot = 0; slot < state_slots(kind); ++slot) args.state[slot] = times.take<float>(count);
  if (has_copy) args.half = times.take<std::uint16_t>(count);
  args.copy_type = Stored::bf16;
  args.count_parts = 1, args.parts[0] = times.take<float>(count);
  args.given.own = {rule_step({.kind = kind, .rate = 0}, 1), 1, total};
  const std::uint64_t bytes = count * (sizeof(float) * (3 + 2 * state_slots(kind)) + (has_copy ? 2 : 0));
  times.time(text("update ", name_of(kind), " [", count, "]"), bytes, count, args);
}

/// Of a gradient, and of the weights and updates of tensors of equal size.
void time_squares(KernelTimes& times, std::uint64_t most_tensors, std::uint64_t each) {
  const std::uint64_t tensors = std::min<std::uint64_t>(most_tensors, times.processors());  // whose blocks run at once
  const std::uint64_t count = tensors * each;
  times.begin();
  auto* const total = times.take<StepSums>(1);
  times.write(total, {StepSums{.samples = 1}});
  CheckGradientArgs check{};
  check.sum = check.parts[0] = times.take<float>(count), check.count = count, check.count_parts = 1, check.squares = 1;
  check.scratch = times.take<SquareScratch>(1);
  times.write(check.scratch, std::vector<SquareScratch>(1));
  check.given.own.sums = times.take<StepSums>(1);
  times.time(text("check gradient [", count, "]"), count * sizeof(float),
             std::min<std::uint64_t>(count_square_pieces(count), kGradientBlocks) * kBlockThreads, check);
  std::vector<Layout::Entry> ranges;
  for (std::uint64_t t = 0; t < tensors; ++t) ranges.push_back({t * each, each});
  AddUpdateSquaresArgs measure{};
  measure.sum = check.sum, measure.parameters = times.take<float>(count), measure.state[0] = times.take<float>(count);
  measure.count = count, measure.count_scaled = tensors, measure.scratch = check.scratch;
  auto* const scaled = times.take<Layout::Entry>(tensors);
  times.write(scaled, ranges);
  measure.scaled = scaled, measure.squares = times.take<TensorSquares>(tensors);
  measure.given.own = {rule_step({.kind = RuleKind::lars}, 1), 1, total};
  times.time(text("add update squares [", tensors, ", ", each, "]"), 3 * count * sizeof(float),
             tensors * kTensorBlocks * kBlockThreads, measure);
}

void time_elements(KernelTimes& times, Stored type) {
  constexpr std::uint64_t kCount = std::uint64_t{1} << 22;
  const std::uint64_t tensor = kCount * bytes_of(type);
  times.begin();
  void *const a = times.take(kCount, type), *const b = times.take(kCount, type), *const c = times.take(kCount, type);
  for (const auto& [curve, name] : {std::pair{Curve::relu, "relu"}, std::pair{Curve::gelu, "gelu"}}) {
    times.time(of(text("activate ", name).c_str(), type, {kCount}), 2 * tensor, kCount,
               ActivateArgs{nullptr, b, a, kCount, curve, type, type, 0});
    times.time(of(text("activate_back ", name).c_str(), type, {kCount}), 3 * tensor, kCount,
               ActivateBackArgs{nullptr, {c, type, 0}, a, b, kCount, curve, type, type, 0});
  }
  CombineArgs sum{};
  sum.to = c, sum.from[0] = a, sum.from[1] = b, sum.from_types[0] = sum.from_types[1] = sum.to_type = type;
  sum.count = kCount, sum.count_inputs = 2;
  times.time(of("combine", type, {kCount}), 3 * tensor, kCount, sum);
  times.time(of("move_columns", type, {kCount / 4}), tensor / 2, kCount / 4,
             MoveColumnsArgs{nullptr, {b, type, 0}, a, 1, kCount / 4, 0, kCount / 4, 0, kCount / 4, type, 0});
  times.time(of("move_columns to every third", type, {2048, 384}), 2 * 2048 * 384 * bytes_of(type), 2048 * 384,
             MoveColumnsArgs{nullptr, {b, type, 0}, a, 2048, 384, 0, 1152, 0, 384, type, 0});
  times.time(of("convert from f32", type, {kCount / 4}), kCount / 4 * 4 + tensor / 4, kCount / 4,
             ConvertArgs{nullptr, b, a, kCount / 4, type, Stored::f32});
  times.time(of("copy", type, {kCount}), 2 * tensor, tensor / 16,
             CopyArgs{nullptr, static_cast<std::byte*>(b), static_cast<std::byte*>(a), tensor});
  times.time(of("clear", type, {kCount}), tensor, tensor / 16, ClearArgs{nullptr, static_cast<std::byte*>(b), tensor});
  const std::int32_t* const keys = times.take<std::int32_t>(2 * 1024);
  times.time(of("drop", type, {1024, 1024}), 2 * 1024 * 1024 * bytes_of(type), 1024 * 1024,
             DropArgs{nullptr, {b, type, 0}, a, keys, 1024 * 1024, 1024, 0.1, 1, type});
  PermuteArgs permute{};
  permute.to = {b, type, 0}, permute.from = a, permute.from_type = type;
  permute.count = 64 * 64 * 9, permute.width = 64 * 9, permute.count_extents = 2;
  permute.extents[0] = 64, permute.strides[0] = 1, permute.extents[1] = 9, permute.strides[1] = 64;
  times.time(of("permute weights", type, {64, 9, 64}), 2 * permute.count * bytes_of(type), permute.count, permute);
}

/// As Math::cut() does it.
ColumnSums cut(const KernelTimes& times, std::uint64_t rows, std::uint64_t columns) {
  ColumnSums sums{rows, columns, 1, 0};
  sums.parts = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(2 * times.processors() / tiles_across(sums), 1, std::max<std::uint64_t>(rows / 64, 1)));
  return sums;
}

void time_columns(KernelTimes& times, Stored type, std::uint64_t rows, std::uint64_t columns) {
  times.begin();
  const std::uint64_t count = rows * columns, tensor = count * bytes_of(type);
  SumColumnsArgs args{};
  args.to = times.take<float>(columns), args.times_to = times.take<float>(columns);
  args.sums = cut(times, rows, columns);
  args.partial = times.take<SlopeSums>(args.sums.parts * columns);
  args.from = times.take(count, type), args.from_type = args.times_type = type;
  const std::uint64_t items = count_tiles(args.sums) * kBlockThreads;
  times.time(of("sum_columns", type, {rows, columns}), tensor, items, args);
  args.times = times.take(count, type), args.moments = times.take<RowMoments>(rows);
  times.time(of("sum_columns with a norm's", type, {rows, columns}), 2 * tensor, items, args);
}

void time_channels(KernelTimes& times, Stored type, std::uint64_t rows, std::uint32_t channels) {
  times.begin();
  const std::uint64_t count = rows * channels, tensor = count * bytes_of(type);
  const ChannelTiles tiles = channel_tiles(rows, channels, type != Stored::f32, 2 * times.processors());
  const std::uint64_t items = std::uint64_t{count_blocks(tiles)} * kBlockThreads;
  void *const x = times.take(count, type), *const gradient = times.take(count, type),
              *const y = times.take(count, type);
  const auto* const scale = times.take<float>(channels);
  SumMomentsArgs sum{};
  sum.to = times.take<float>(3 * channels), sum.partial = times.take<Moments>(tiles.parts * channels);
  sum.from = x, sum.from_type = type, sum.tiles = tiles, sum.epsilon = 1e-5F;
  times.time(of("sum_moments", type, {rows, channels}), tensor, items, sum);
  NormalizeBatchArgs normalize{};
  normalize.to = y, normalize.from = x, normalize.to_type = normalize.from_type = normalize.added_type = type;
  normalize.moments = sum.to, normalize.scale = normalize.shift = scale, normalize.tiles = tiles;
  normalize.with_relu = 1;
  times.time(of("normalize_batch with a ReLU", type, {rows, channels}), 2 * tensor, items, normalize);
  SumSlopesArgs slopes{};
  slopes.sums_to = times.take<float>(2 * channels), slopes.partial = times.take<SlopeSums>(tiles.parts * channels);
  slopes.scale_to = times.take<float>(channels), slopes.shift_to = times.take<float>(channels);
  slopes.mean_to = times.take<float>(channels), slopes.variance_to = times.take<float>(channels);
  slopes.gradient = gradient, slopes.from = x, slopes.moments = sum.to, slopes.scale = slopes.shift = scale;
  slopes.gradient_type = slopes.from_type = slopes.kept_type = type, slopes.tiles = tiles;
  slopes.samples = times.take<std::uint64_t>(1), slopes.relu = NormRelu::again;
  times.time(of("sum_slopes of a ReLU", type, {rows, channels}), 2 * tensor, items, slopes);
  NormalizeBatchBackArgs back{};
  back.to = {y, type, 0}, back.gradient = gradient, back.from = x, back.moments = sum.to, back.sums = slopes.sums_to;
  back.scale = back.shift = scale, back.tiles = tiles, back.gradient_type = back.from_type = type;
  back.relu = NormRelu::again;
  times.time(of("normalize_batch_back of a ReLU", type, {rows, channels}), 3 * tensor, items, back);
}

void time_rows(KernelTimes& times, Stored type, std::uint64_t rows, std::uint64_t width) {
  times.begin();
  const std::uint64_t count = rows * width, tensor = count * bytes_of(type);
  void *const x = times.take(count, type), *const gradient = times.take(count, type),
              *const y = times.take(count, type);
  auto* const moments = times.take<RowMoments>(rows);
  const auto* const scale = times.take<float>(width);
  times.time(of("normalize_rows", type, {rows, width}), 2 * tensor, rows * kWarpThreads,
             NormalizeRowsArgs{nullptr, y, moments, x, scale, scale, rows, width, 1e-5F, 1, type, type});
  times.time(of("normalize_rows_back", type, {rows, width}), 3 * tensor, rows * kWarpThreads,
             NormalizeRowsBackArgs{nullptr, {y, type, 0}, gradient, x, moments, scale, rows, width, 1, type, type, 0});
}

void time_softmax(KernelTimes& times, Stored type) {
  constexpr std::uint64_t kRows = 12288, kLength = 256, kCount = kRows * kLength;
  times.begin();
  void* const weights = times.take(kCount, type);
  auto* const scores = times.take<float>(kCount);
  times.time(of("softmax_rows", type, {kRows, kLength}), kCount * (4 + bytes_of(type)), kRows * kWarpThreads,
             SoftmaxRowsArgs{nullptr, weights, scores, kRows, kLength, 1, type});
  times.time(of("softmax_rows_back", type, {kRows, kLength}), kCount * (4 + 2 * bytes_of(type)), kRows * kWarpThreads,
             SoftmaxRowsBackArgs{nullptr, times.take(kCount, type), scores, weights, kRows, kLength, 1, type});
}

void time_loss(KernelTimes& times, Stored type, std::uint64_t rows, std::uint32_t classes) {
  times.begin();
  CrossEntropyArgs args{};
  args.rows = times.take<RowLoss>(rows), args.logits = times.take(rows * classes, type);
  args.gradient = {times.take(rows * classes, type), type, 0};
  auto* const labels = times.take<std::int32_t>(rows);
  times.write(labels, std::vector<std::int32_t>(rows));  // other kernels have left anything here
  args.labels = labels, args.count_rows = rows, args.classes = classes, args.ignore = -1;
  args.weight = 1, args.logits_type = type, args.total.weight = 1, args.total.counts = 1;
  args.given.own.sums = times.take<StepSums>(1);
  times.time(of("cross_entropy", type, {rows, classes}), 2 * rows * classes * bytes_of(type), rows * kWarpThreads,
             args);
}

void time_pools(KernelTimes& times, Stored type, PoolShape shape) {
  times.begin();
  find_divisors(shape);
  const std::uint64_t in = shape.count_in(), out = shape.count_out(), bytes = bytes_of(type);
  MaxPoolArgs args{};
  args.to = times.take(out, type), args.from = times.take(in, type), args.index = times.take<std::byte>(out);
  args.shape = shape, args.to_type = args.from_type = type;
  divide_among_threads(args);
  times.time(of("max_pool", type, {shape.images, shape.height, shape.width, shape.channels}), (in + out) * bytes + out,
             count_items(args), args);
  MaxPoolBackArgs back{};
  back.to = {times.take(in, type), type, 0}, back.gradient = times.take(out, type), back.index = args.index;
  back.shape = shape, back.gradient_type = type;
  divide_among_threads(back);
  times.time(of("max_pool_back", type, {shape.images, shape.height, shape.width, shape.channels}),
             (in + out) * bytes + out, count_items(back), back);
}

void time_tokens(KernelTimes& times, Stored type) {
  constexpr std::uint64_t kPlaces = 2048, kWidth = 384, kCount = kPlaces * kWidth;
  constexpr std::uint32_t kVocabulary = 65;
  times.begin();
  std::vector<std::int32_t> drawn(kPlaces);  // a few tokens are frequent, as letters are
  for (std::uint64_t p = 0; p < kPlaces; ++p)
    drawn[p] = static_cast<std::int32_t>((p * p / 7 % kVocabulary) * (p % 5 + 1) / 5);
  auto* const tokens = times.take<std::int32_t>(kPlaces);
  times.write(tokens, drawn);
  void *const to = times.take(kCount, type), *const table = times.take(kVocabulary * kWidth, type);
  auto* const links = times.take<TokenLink>(kPlaces);
  EmbedArgs embed{};
  embed.to = to, embed.table = table, embed.tokens = tokens, embed.count = kPlaces, embed.width = kWidth;
  embed.vocabulary = kVocabulary, embed.to_type = embed.table_type = type;
  times.time(of("embed", type, {kPlaces, kWidth}), kCount * bytes_of(type), kCount, embed);
  times.time(of("add_repeated", type, {8, kCount / 8}), 2 * kCount * bytes_of(type), kCount,
             AddRepeatedArgs{nullptr, to, to, table, kCount, 64 * kWidth, type, type, type, 0});
  times.time(text("link_tokens [", kPlaces, "]"), 0, kPlaces * kWarpThreads,
             LinkTokensArgs{nullptr, links, tokens, kPlaces});
  EmbedBackArgs back{};
  back.to = times.take<float>(kVocabulary * kWidth), back.gradient = to, back.tokens = tokens, back.links = links;
  back.count = kPlaces, back.width = kWidth, back.vocabulary = kVocabulary, back.gradient_type = type;
  times.time(of("embed_back", type, {kPlaces, kWidth}), kCount * bytes_of(type), count_tiles(back) * kBlockThreads,
             back);
}

/// Kernels of one thread, or block, whose time is that of a few words.
void time_words(KernelTimes& times) {
  times.begin();
  SignalArgs signal{};
  signal.given.own = {times.pinned<std::uint64_t>(), 1};
  times.time("signal", 0, 1, signal);
  EndStepBlockArgs end{};
  end.count = times.take<ReplayCount>(1), end.done = times.pinned<std::uint64_t>();
  times.time("end_step_block", 0, 1, end);
  LoadStepBlockArgs load{};
  load.count = times.take<ReplayCount>(1), load.ring = times.pinned<std::uint64_t>();
  load.to = times.take<std::uint64_t>(64), load.slots = 8, load.words = 64;
  times.time("load_step_block of 64 words", 0, kBlockThreads, load);
}

}  // namespace

void measure_kernels(const GpuCase& what) {
  KernelTimes times{what};
  time_words(times);
  time_update(times, RuleKind::adam, 1800000, false);
  time_update(times, RuleKind::adamw, 10800000, true);
  time_squares(times, 54, 320000);  // the weights of ResNet-50's convolutions are 54 tensors
  for (const Stored type : {Stored::f32, Stored::bf16}) {
    if (what.dtype != "both" && (what.dtype == "f32") != (type == Stored::f32)) continue;
    time_elements(times, type);
    time_columns(times, type, 65536, 64);
    time_columns(times, type, 78400, 6);
    time_columns(times, type, 2048, 384);
    time_channels(times, type, 65536, 16);
    time_channels(times, type, 16384, 32);
    time_channels(times, type, 4096, 64);
    time_rows(times, type, 2048, 384);
    time_softmax(times, type);
    time_loss(times, type, 100, 10);
    time_loss(times, type, 2048, 65);
    time_pools(times, type, {64, 32, 32, 64, 16, 16, 3, 3, 2, 2, 1, 1});
    time_pools(times, type, {64, 24, 24, 6, 12, 12, 2, 2, 2, 2, 0, 0});
    time_tokens(times, type);
  }
}

}  // namespace troupe::bench
