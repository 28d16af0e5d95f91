#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "devices/cuda/cuda_device.hpp"
#include "devices/discovery/machine_discovery.hpp"
#include "runtime/base/error.hpp"
#include "tools/crew/crew.hpp"
#include "tools/rttopo/bench/dense_model.hpp"
#include "tools/rttopo/bench/measures.hpp"
#include "tools/rttopo/bench/members.hpp"

namespace troupe::rttopo {
namespace {

using nlohmann::json;
using topology::ComputeFigure;
using topology::GpuFigure;
using topology::GpuLinkFigure;
using topology::Repeats;

constexpr std::uint64_t kMebi = std::uint64_t{1} << 20;
constexpr std::uint64_t kLeastCopy = kMebi, kMostCopy = 256 * kMebi, kMostPairCopy = 64 * kMebi;
constexpr double kLongEnough = 1e-3;  // seconds of one copy: a launch is then a small part of it
constexpr std::uint32_t kSmallCopy = 64;
constexpr std::uint32_t kFurtherKernels = 16;
constexpr double kMostCalls = 256;  // that are enqueued at once: the driver holds a caller who is far ahead
constexpr std::chrono::minutes kMembersPatience{2};

/// From small to large: a GPU for which one is too slow is not measured with those behind it.
constexpr DenseLayers kSmall{2, 256}, kMiddle{2, 1024}, kLarge{4, 4096};
struct GpuCase {
  DenseLayers model;
  std::uint32_t rows;
};
constexpr GpuCase kCases[] = {{kSmall, 16}, {kSmall, 512},  {kMiddle, 64}, {kMiddle, 1024},
                              {kLarge, 64}, {kLarge, 1024}, {kLarge, 8192}};
constexpr double kLongestStep = 0.5;  // seconds

double seconds_since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

/// A GPU with a stream.
class GpuBench {
 public:
  GpuBench(const Measuring& how, const CudaDeviceOptions& options)
      : how_(how),
        on_([&](AddressSpace& space) { return make_cuda_device(space, options); }),
        stream_(on_.device().stream()) {}

  MeasuredDevice& on() noexcept { return on_; }
  const DeviceTraits& traits() { return on_.device().traits(); }

  /// The seconds of one call, of many that are enqueued one behind the other.
  Repeats seconds_of(const std::function<void()>& enqueue) {
    (void)timed(enqueue, 1);
    const double one = std::max(1e-7, timed(enqueue, 1));
    const double span = std::chrono::duration<double>(how_.span).count();
    const auto times = static_cast<std::uint64_t>(std::clamp(span / one, 1.0, kMostCalls));
    std::vector<double> all;
    for (std::uint32_t r = 0; r < how_.repeats; ++r) {
      how_.check_stop();
      all.push_back(timed(enqueue, times));
    }
    return topology::repeats_of(all);
  }
  Repeats seconds_of_copy(const Memory& to, const Memory& from) {
    return seconds_of([&] { stream_->copy(to, from); });
  }
  /// The bytes per second of copies, each byte counted `times`.
  Repeats rate_of_copy(const Memory& to, const Memory& from, double times) {
    const Repeats seconds = seconds_of_copy(to, from);
    const double bytes = times * static_cast<double>(to.size_bytes);
    return {bytes / seconds.median, bytes / seconds.most, bytes / seconds.least};
  }
  /// Of a recorded program of so many small kernels.
  Repeats seconds_of_program(std::uint32_t kernels) {
    const Memory to = on_.take(kSmallCopy), from = on_.take(kSmallCopy);
    return seconds_of([&, kernels] {
      stream_->enqueue(programs_, [&] {
        for (std::uint32_t k = 0; k < kernels; ++k) stream_->copy(to, from);
      });
    });
  }
  /// Two pieces of its memory whose copy takes long enough, or the largest ones.
  std::pair<Memory, Memory> pieces(std::uint64_t memory_bytes) {
    for (std::uint64_t bytes = kLeastCopy;; bytes *= 4) {
      const std::pair<Memory, Memory> made{on_.take(bytes), on_.take(bytes)};
      (void)timed([&] { stream_->copy(made.first, made.second); }, 1);
      const double one = timed([&] { stream_->copy(made.first, made.second); }, 1);
      if (one >= kLongEnough || bytes >= kMostCopy || 16 * bytes > memory_bytes / 4) return made;
    }
  }

 private:
  double timed(const std::function<void()>& enqueue, std::uint64_t times) {
    const auto begun = Clock::now();
    for (std::uint64_t i = 0; i < times; ++i) enqueue();
    on_.wait(how_.blocking, stream_->mark());
    return seconds_since(begun) / static_cast<double>(times);
  }

  const Measuring& how_;
  MeasuredDevice on_;
  Programs programs_;
  std::unique_ptr<Stream> stream_;
};

/// Products of one kind: `dtype` for people, that of the graph, and what the device needs for it.
struct ProductKind {
  const char* dtype;
  DType type;
  bool tf32;
};
constexpr ProductKind kByLibrary[] = {
    {"f32", DType::f32, false}, {"tf32", DType::f32, true}, {"bf16", DType::bf16, false}};
constexpr ProductKind kByOwn[] = {{"f32", DType::f32, false}, {"bf16", DType::bf16, false}};

/// By the library or by own kernels. Empty: there is no library.
std::vector<ComputeFigure> measure_products(const Measuring& how, const CudaGpu& gpu, const std::string& products,
                                            std::span<const ProductKind> kinds, std::string* name) {
  std::vector<ComputeFigure> figures;
  for (const ProductKind& kind : kinds) {
    std::unique_ptr<MeasuredDevice> device;
    try {
      device = std::make_unique<MeasuredDevice>([&](AddressSpace& space) {
        return make_cuda_device(space, {.bus = gpu.bus, .products = products, .cublaslt = {}, .tf32 = kind.tf32});
      });
    } catch (const Error& error) {
      if (error.code() != Code::environment || products == "own") throw;
      how.say(text("gpu      ", gpu.bus, ": products by own kernels alone: ", error.what()));
      return {};
    }
    const std::string& description = device->device().traits().description;
    constexpr std::string_view kBy = ", products by ";
    if (const auto at = description.find(kBy); name != nullptr && name->empty() && at != std::string::npos)
      *name = description.substr(at + kBy.size());
    double rate = 0;
    for (const GpuCase& what : kCases) {
      const Graph graph = dense_graph(what.model, kind.type);
      const double flops = static_cast<double>(graph.training_flops()) * what.rows;
      if (rate > 0 && flops / rate > kLongestStep) break;
      std::array<std::unique_ptr<DenseModel>, 1> model{
          std::make_unique<DenseModel>(*device, graph, what.rows, /*records=*/true)};
      ComputeFigure& figure = figures.emplace_back(ComputeFigure{
          .dtype = kind.dtype, .rows = what.rows, .units = what.model.units, .layers = what.model.layers});
      figure.flops_per_second = rate_of(how, model, flops);
      rate = figure.flops_per_second.median;
      how.say(fmt::format("gpu      {}, {} x {}, {}, {} rows, {}: {:.4g} GFLOP/s", gpu.bus, figure.layers, figure.units,
                          figure.dtype, figure.rows, products == "own" ? "own kernels" : "cuBLASLt", rate / 1e9));
    }
  }
  return figures;
}

void say_link(const Measuring& how, const GpuLinkFigure& link) {
  how.say(fmt::format("gpu      {} to {}: {:.3g} us, {:.3g} GB/s", link.from, link.to, link.seconds.median * 1e6,
                      link.bytes_per_second.median / 1e9));
}

GpuFigure measure_gpu(const Measuring& how, const CudaGpu& gpu, topology::Measurements& all) {
  GpuFigure figure{.bus = gpu.bus,
                   .model = gpu.model,
                   .products = {},
                   .bytes_per_second = {},
                   .launch_seconds = {},
                   .kernel_seconds = {}};
  {
    GpuBench bench{how, {.bus = gpu.bus, .products = "own", .cublaslt = {}}};
    const auto [to, from] = bench.pieces(gpu.memory_bytes);
    figure.bytes_per_second = bench.rate_of_copy(to, from, 2);
    figure.launch_seconds = bench.seconds_of_program(1);
    const Repeats longer = bench.seconds_of_program(1 + kFurtherKernels);
    const auto each = [&](double whole, double alone) { return std::max(0.0, whole - alone) / kFurtherKernels; };
    figure.kernel_seconds = topology::repeats_of({each(longer.least, figure.launch_seconds.least),
                                                  each(longer.median, figure.launch_seconds.median),
                                                  each(longer.most, figure.launch_seconds.most)});
    how.say(
        fmt::format("gpu      {}, {}: {:.4g} GB/s within its memory, {:.3g} us a launch, {:.3g} us a further kernel",
                    gpu.bus, gpu.model, figure.bytes_per_second.median / 1e9, figure.launch_seconds.median * 1e6,
                    figure.kernel_seconds.median * 1e6));
    const Memory pinned = bench.on().take(to.size_bytes, MemoryKind::pinned);
    const auto link = [&](const char* from_name, const std::string& to_name, const Memory& there, const Memory& here) {
      all.gpu_links.push_back(
          {.from = from_name,
           .to = to_name,
           .bytes = to.size_bytes,
           .seconds = bench.seconds_of_copy(slice(there, 0, kSmallCopy), slice(here, 0, kSmallCopy)),
           .bytes_per_second = bench.rate_of_copy(there, here, 1)});
      say_link(how, all.gpu_links.back());
    };
    link(GpuLinkFigure::kHost, gpu.bus, to, pinned);
    link(gpu.bus.c_str(), GpuLinkFigure::kHost, pinned, to);
  }
  figure.compute = measure_products(how, gpu, "cublaslt", kByLibrary, &figure.products);
  figure.own = measure_products(how, gpu, "own", kByOwn, nullptr);
  return figure;
}

/// What a millisecond's copy within a GPU's memory takes, as far as all GPUs have it.
std::uint64_t pair_bytes(const topology::Measurements& all) {
  double rate = 1e12;
  for (const GpuFigure& gpu : all.gpus) rate = std::min(rate, gpu.bytes_per_second.median);
  return std::clamp(static_cast<std::uint64_t>(rate * kLongEnough) / kMebi * kMebi, kLeastCopy, kMostPairCopy);
}

void measure_pairs(const Measuring& how, const rtrun::Signals& signals, const std::vector<CudaGpu>& gpus,
                   topology::Measurements& all) {
  const auto reaches_none = [](const CudaGpu& gpu) { return gpu.reaches.empty(); };
  if (gpus.size() < 2 || std::ranges::all_of(gpus, reaches_none)) return;
  crew::CrewPlan plan;
  plan.name = "the processes that copy between GPUs";
  plan.patience = kMembersPatience;
  for (const CudaGpu& gpu : gpus)
    plan.roles.push_back({{"gpu", gpu.bus},
                          {"self", plan.roles.size()},
                          {"bytes", pair_bytes(all)},
                          {"repeats", how.repeats},
                          {"span_ms", std::chrono::duration_cast<std::chrono::milliseconds>(how.span).count()}});
  crew::Crew crew{signals, std::move(plan)};
  const std::vector<json> tickets = crew.await_all(how.blocking, "ticket");
  for (std::uint32_t to = 0; to < gpus.size(); ++to) {
    for (std::uint32_t from = 0; from < gpus.size(); ++from) {
      if (std::ranges::find(gpus[to].reaches, gpus[from].bus) == gpus[to].reaches.end()) continue;
      how.check_stop();
      const json said = crew.ask(how.blocking, to, {{"ticket", tickets[from]["ticket"]}}, "figures");
      all.gpu_links.push_back({.from = gpus[from].bus,
                               .to = gpus[to].bus,
                               .bytes = pair_bytes(all),
                               .seconds = from_word(said.at("seconds")),
                               .bytes_per_second = from_word(said.at("bytes_per_second"))});
      say_link(how, all.gpu_links.back());
    }
  }
  // Nobody frees what another one has open.
  (void)crew.ask_all(how.blocking, {{"leave", true}}, "left");
  for (std::uint32_t each = 0; each < gpus.size(); ++each) crew.tell(each, {{"end", true}});
  for (std::uint32_t each = 0; each < gpus.size(); ++each) crew.await_end(how.blocking, each, crew.patience());
}

}  // namespace

void measure_gpus(const Measuring& how, const rtrun::Signals& signals, topology::Measurements& all) {
  const CudaGpus found = find_cuda_gpus();
  if (found.gpus.empty()) {
    if (!found.is_absent) how.say(text("gpu      not measured: ", found.refusal.text()));
    return;
  }
  all.versions["cuda"] = found.version;
  if (const std::string driver = discover_machine().system.gpu_driver; !driver.empty())
    all.versions["gpu_driver"] = driver;
  std::vector<CudaGpu> measured;
  for (const CudaGpu& gpu : found.gpus) {
    try {
      all.gpus.push_back(measure_gpu(how, gpu, all));
      measured.push_back(gpu);
    } catch (const Error& error) {  // this one cannot be used, or not now; what else there is can be measured
      if (error.code() != Code::environment && error.code() != Code::unsupported) throw;
      how.say(text("gpu      ", gpu.bus, " is not measured: ", error.what()));
    }
  }
  if (!measured.empty()) measure_pairs(how, signals, measured, all);
}

void be_gpu_member(Blocking& blocking, crew::Line& line, const json& role) {
  const Measuring how{.blocking = blocking,
                      .repeats = role.at("repeats"),
                      .span = std::chrono::milliseconds(role.at("span_ms").get<std::int64_t>()),
                      .say = {},
                      .check_stop = [] {}};
  GpuBench bench{how, {.bus = role.at("gpu").get<std::string>(), .products = "own", .cublaslt = {}}};
  bench.on().be(role.at("self").get<std::uint32_t>());
  const auto bytes = role.at("bytes").get<std::uint64_t>();
  const Memory own = bench.on().take(bytes), shown = bench.on().take(bytes);
  const RegionTicket ticket = bench.on().device().ticket(shown.arena);
  line.tell({{"say", "ticket"}, {"ticket", crew::binary(std::as_bytes(std::span{&ticket, 1}))}});
  while (const auto order = line.hear()) {
    if (order->contains("end")) return;
    if (order->contains("leave")) {
      bench.on().device().end_imports();
      line.tell({{"say", "left"}});
      continue;
    }
    const std::vector<std::byte> told = crew::bytes_of(order->at("ticket"));
    RegionTicket other;
    TROUPE_CHECK(told.size() == sizeof other, Code::corrupt, "a ticket has ", told.size(), " bytes");
    std::memcpy(&other, told.data(), sizeof other);
    const Memory theirs = bench.on().device().import(other);
    line.tell({{"say", "figures"},
               {"seconds", to_word(bench.seconds_of_copy(slice(own, 0, kSmallCopy), slice(theirs, 0, kSmallCopy)))},
               {"bytes_per_second", to_word(bench.rate_of_copy(own, theirs, 1))}});
  }
}

}  // namespace troupe::rttopo
