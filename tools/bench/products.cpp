#include "tools/bench/products.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>

#include <nlohmann/json.hpp>

#include "apps/models/models.hpp"
#include "apps/session/session.hpp"
#include "devices/cpu/cpu_device.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/memory/arena.hpp"
#include "tools/rtrun/launcher.hpp"
#include "tools/rtrun/prepare.hpp"

namespace troupe::bench {
namespace {

constexpr std::size_t kWindows = 5;
constexpr auto kStepDeadline = std::chrono::seconds(30);

/// Wants nothing of the buckets.
class Unused final : public BucketSink {
 public:
  void ready(const Bucket&, Stream&) noexcept override {}
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// A replica with its memory and one batch, as the plan places it.
class Products {
 public:
  Products(const Configuration& configuration, const DataPlace& place, std::uint32_t rank) {
    const DataSet data = read_data(place);
    const Graph graph = build_model(configuration.settings, data.train->fields());
    const Layout layout{graph};
    const Plan plan = preview(configuration, place);
    const BatchLayout batch{plan.batch, graph.fields()};
    const std::uint64_t elements = layout.count_elements();
    arena_ = Arena::create(arena_id({rank}, 1), elements * 10 + batch.size_bytes() + (1 << 20));
    space_.map(arena_);
    ReplicaMemory memory{arena_->allocate(elements * sizeof(float)), {}, arena_->allocate(elements * sizeof(float))};
    float* parameters = space_.address_of<float>(memory.parameters);
    fill_initial(graph, layout, plan.seed, {parameters, elements});
    if (graph.dtype() == DType::bf16) {
      memory.bf16 = arena_->allocate(elements * size_bytes(DType::bf16));
      auto* half = space_.address_of<std::uint16_t>(memory.bf16);
      for (std::uint64_t i = 0; i < elements; ++i) half[i] = to_bf16(parameters[i]);
    }
    batch_ = arena_->allocate(batch.size_bytes());
    sums_ = arena_->allocate(sizeof(StepSums));
    std::vector<Sample> samples(plan.batch);
    for (std::uint32_t i = 0; i < plan.batch; ++i) samples[i].index = i;
    fill_now(*data.train, {samples, plan.seed, &batch, space_.address(batch_)});
    const RankPlan& mine = plan.ranks.at(rank);
    device_ = make_cpu_device(space_, {.cpus = mine.cpus, .threads = mine.device_threads, .may_spin = mine.may_spin});
    replica_ = device_->compile(graph, layout, batch, make_buckets(GroupId{}, graph, layout, 0), memory);
    stream_ = device_->stream();
    Unused unused;
    replica_->step(*stream_, batch_, batch.rows(), sums_, unused);
    wait();
  }

  /// Runs products for `span` and returns the microseconds a step of them took.
  double run(Clock::duration span) {
    const auto begun = Clock::now();
    const Deadline end = Deadline::after(span);
    std::uint64_t steps = 0;
    while (!end.passed()) {
      for (int ahead = 0; ahead < 4; ++ahead, ++steps) enqueue_products(*replica_, *stream_, batch_, sums_);
      wait();
    }
    return std::chrono::duration<double, std::micro>(Clock::now() - begun).count() / static_cast<double>(steps);
  }

 private:
  void wait() {
    Blocking blocking = Blocking::on_thread("main");
    const Point done = stream_->mark();
    const Status status =
        space_.timeline(done.line).wait(blocking, done.value, Deadline::after(kStepDeadline), "a step's products");
    TROUPE_CHECK(status.ok(), status.code(), status.text());
  }

  AddressSpace space_;
  std::shared_ptr<Arena> arena_;
  Memory batch_;
  Memory sums_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<Stream> stream_;
};

/// The values under `key` of the JSON line that this program prints when run with `arguments`.
std::vector<double> measure(const std::string& arguments, const char* key) {
  const std::string command = "/proc/" + std::to_string(::getpid()) + "/exe " + arguments;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe{::popen(command.c_str(), "r"), ::pclose};
  TROUPE_CHECK_ERRNO(pipe != nullptr, Code::environment, "cannot run ", command);
  std::string output;
  std::array<char, 4096> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe.get()) != nullptr) output += buffer.data();
  const auto line = nlohmann::json::parse(output, nullptr, false);
  TROUPE_CHECK(line.is_object() && line.contains(key), Code::device_fault, "no result came from: ", command);
  return line[key].get<std::vector<double>>();
}

}  // namespace

int run_products(Blocking& blocking, const rtrun::Signals& signals, const TrainCase& what,
                 std::vector<std::string> arguments) {
  const Configuration configuration = configuration_of(what);
  const std::optional<LaunchPlace> place = launch_place_from_environment();
  const DataPlace data = rtrun::locate_data(configuration);
  if (!place && what.np > 1) {
    const auto& faults = configuration.settings.faults;
    return rtrun::launch(blocking, signals,
                         {.sites = rtrun::sites_of({.local = what.np}, {}),
                          .arguments = std::move(arguments),
                          .stop = faults.stop,
                          .idle = faults.exchange});
  }
  const std::uint32_t rank = place ? place->rank : 0;
  Products products{configuration, data, rank};
  products.run(std::chrono::milliseconds(300));
  const auto window =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(what.seconds / kWindows));
  std::vector<double> us;
  for (std::size_t w = 0; w < kWindows; ++w) us.push_back(std::round(products.run(window) * 10) / 10);
  if (rank != 0) return 0;
  const nlohmann::ordered_json line{{"bench", "products"}, {"impl", "ours-" + what.dtype}, {"np", what.np}, {"us", us}};
  std::cout << line.dump() << std::endl;
  return 0;
}

int run_step(const TrainCase& what, std::uint32_t rounds) {
  const std::string options = text(" --case ", what.name, " --np ", what.np, " --dtype ", what.dtype, " --batch ",
                                   what.batch, " --seconds ", what.seconds);
  std::vector<double> steps;
  std::vector<double> products;
  std::vector<double> ratios;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const double rate = median(measure("train" + options, "v"));
    steps.push_back(std::round(1e7 * what.np * what.batch / rate) / 10);
    products.push_back(median(measure("products" + options, "us")));
    ratios.push_back(std::round(1000 * steps.back() / products.back()) / 1000);
  }
  const nlohmann::ordered_json line{{"bench", "step"},        {"impl", "ours-" + what.dtype}, {"np", what.np},
                                    {"step_us", steps},       {"products_us", products},      {"ratios", ratios},
                                    {"ratio", median(ratios)}};
  std::cout << line.dump() << std::endl;
  return 0;
}

}  // namespace troupe::bench
