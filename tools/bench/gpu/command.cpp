#include "tools/bench/gpu/command.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "apps/models/models.hpp"
#include "devices/cpu/cpu_device.hpp"
#include "devices/cuda/cuda_device.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/compute/host_copies.hpp"
#include "runtime/config/config.hpp"
#include "tools/bench/cases.hpp"
#include "tools/bench/gpu/kernels.hpp"
#include "tools/bench/options.hpp"
#include "tools/bench/say.hpp"
#include "tools/bench/train.hpp"
#include "tools/crew/statistics.hpp"

namespace troupe::bench {
namespace {

constexpr std::uint64_t kStepsInFlight = 3;
/// Of a job: its first steps are recorded.
constexpr Pace kJobPace{.warm_steps = 10, .window_steps = 1};

double us_since(Clock::time_point begun) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begun).count();
}

/// How long one wait for a device may take.
std::chrono::milliseconds patience_of(const GpuCase& what) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>{what.patience});
}

/// One of the devices that are compared, with memory of its own kind.
class Side {
 public:
  using Make = std::unique_ptr<Device> (*)(AddressSpace&, const GpuCase&);

  Side(std::string name, Make make, const GpuCase& what) : what(what), name_(std::move(name)) {
    device_ = make(space_, what);
    stream_ = device_->stream();
  }

  const GpuCase& what;

  Device& device() { return *device_; }
  Stream& stream() { return *stream_; }
  const DeviceTraits& traits() const { return device_->traits(); }

  Memory take(std::uint64_t size_bytes) { return take(size_bytes, traits().memory); }
  Memory take(std::uint64_t size_bytes, MemoryKind kind) {
    return device_->allocate(arena_id(Peer{0}, ++arenas_), kind, size_bytes);
  }
  void write(const Memory& to, const std::function<void(std::span<std::byte>)>& fill) {
    HostCopies{*device_, space_, arena_id(Peer{0}, ++arenas_), patience_of(what)}.write(to, fill);
  }
  /// Throws when the work is not done in time. It still runs then, and streams wait for theirs when they end, so the
  /// reason is said before that.
  void wait(Point point) {
    Blocking blocking = Blocking::on_thread("main");
    const Status status =
        space_.timeline(point.line).wait(blocking, point.value, Deadline::after(patience_of(what)), "a device's work");
    if (status.code() == Code::timeout)
      say(text("given up: ", status.text(), "; waiting for the work that is under way (--patience sets the limit)"));
    TROUPE_CHECK(status.ok(), status.code(), status.text());
  }
  void finish() { wait(stream_->mark()); }

  /// Microseconds of one of `repeats` calls of `enqueue`, with the work that they enqueue; a value for each round.
  std::vector<double> rounds(std::uint32_t repeats, const std::function<void()>& enqueue) {
    std::vector<double> found;
    enqueue();
    finish();
    for (std::uint32_t round = 0; round < what.rounds; ++round) {
      const auto begun = Clock::now();
      for (std::uint32_t i = 0; i < repeats; ++i) enqueue();
      finish();
      found.push_back(us_since(begun) / repeats);
    }
    return found;
  }

  void print(const std::string& measured, const char* unit, const std::vector<double>& values) const {
    const nlohmann::ordered_json line{
        {"bench", "gpu"}, {"impl", name_}, {"case", measured}, {"unit", unit}, {"v", values}};
    std::cout << line.dump() << std::endl;
  }

 private:
  const std::string name_;
  AddressSpace space_;
  std::uint32_t arenas_ = 0;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

std::unique_ptr<Device> make_gpu(AddressSpace& space, const GpuCase& what) {
  return make_cuda_device(space, {.ordinal = what.ordinal,
                                  .wait_deadline = patience_of(what),
                                  .driver = what.driver,
                                  .products = what.products,
                                  .convolutions = what.products == "own" ? "own" : ""});
}
/// The case with products by a library; nothing: there is none on this machine.
std::optional<GpuCase> library_case(GpuCase what) {
  what.products = "cublaslt";
  try {
    AddressSpace space;
    (void)make_gpu(space, what);
  } catch (const Error& error) {
    if (error.code() != Code::environment) throw;
    return std::nullopt;
  }
  return what;
}
std::unique_ptr<Device> make_cpu(AddressSpace& space, const GpuCase& what) {
  return make_cpu_device(space, {.threads = what.threads, .may_spin = true, .wait_deadline = patience_of(what)});
}

/// What it costs to enqueue the smallest work, and how long it takes until the host sees that it is done.
void measure_launches(Side& side) {
  const Memory to = side.take(64), from = side.take(64);
  std::vector<double> enqueued, seen;
  for (std::uint32_t round = 0; round < side.what.rounds; ++round) {
    double us = 0;
    for (std::uint32_t i = 0; i < side.what.repeats; ++i) {
      const auto begun = Clock::now();
      side.stream().copy(to, from);
      us += us_since(begun);
      side.finish();
    }
    enqueued.push_back(us / side.what.repeats);
    const auto begun = Clock::now();
    for (std::uint32_t i = 0; i < side.what.repeats; ++i) side.finish();
    seen.push_back(us_since(begun) / side.what.repeats);
  }
  side.print("enqueue a copy of 64 bytes", "us", enqueued);
  side.print("mark an empty stream until the host sees it", "us", seen);
  side.print("a copy of 64 bytes behind others", "us",
             side.rounds(side.what.repeats, [&] { side.stream().copy(to, from); }));
}

void measure_copy(Side& side, const std::string& name, const Memory& to, const Memory& from) {
  std::vector<double> rates;
  for (const double us : side.rounds(3, [&] { side.stream().copy(to, from); }))
    rates.push_back(static_cast<double>(to.size_bytes) / us / 1000);
  side.print(text("copy ", side.what.mib, " MiB ", name), "GB/s", rates);
}

void measure_copies(Side& side) {
  const std::uint64_t bytes = std::uint64_t{side.what.mib} << 20;
  const Memory own = side.take(bytes), other = side.take(bytes);
  measure_copy(side, "within its memory", own, other);
  if (side.traits().memory != MemoryKind::device) return;
  const Memory pinned = side.take(bytes, MemoryKind::pinned);
  measure_copy(side, "from the host", own, pinned);
  measure_copy(side, "to the host", pinned, own);
}

/// One pass of Adam over f32 numbers: read 16 bytes of each, write 12.
void add_update_squares(Side& side) {
  const std::uint64_t count = (std::uint64_t{side.what.mib} << 20) / sizeof(float);
  const Memory sums = side.take(sizeof(StepSums));
  side.write(sums, [](std::span<std::byte> bytes) { numbers<StepSums>(bytes)[0].samples = 1; });
  StripeMemory stripe;
  stripe.stripe = {GroupId{}, Rank{}, 0, count};
  stripe.parameters = side.take(count * sizeof(float));
  for (std::size_t slot = 0; slot < state_slots(RuleKind::adam); ++slot)
    stripe.state[slot] = side.take(count * sizeof(float));
  const Memory gradient = side.take(count * sizeof(float));
  std::uint64_t number = 0;
  const auto pass = [&] {
    ++number;
    side.stream().update(rule_step({.kind = RuleKind::adam}, number), number, stripe, std::span{&gradient, 1}, sums);
  };
  side.print(text("adam over ", side.what.mib, " MiB of parameters"), "us", side.rounds(3, pass));
}

/// How often the host has waited for the GPU so far, if the driver's library counts that, as the tests'
/// libcuda_calls.so does.
std::optional<unsigned long> count_host_waits(const GpuCase& what) {
  void* const driver = ::dlopen(what.driver.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (driver == nullptr) return std::nullopt;
  void* const count = ::dlsym(driver, "troupe_cuda_calls_waits");
  const auto waits = count == nullptr ? std::nullopt : std::optional{reinterpret_cast<unsigned long (*)()>(count)()};
  (void)::dlclose(driver);
  return waits;
}

/// A network, trained on one batch again and again. It ends when its steps have, also after a wait that took too long.
class Trained {
 public:
  Trained(Side& side, const Network& network, DType dtype, MemoryKind batch_kind)
      : Trained(side, network, dtype, batch_kind, settings_of(side.what, network, dtype)) {}

  Trained(Side& side, const Network& network, DType dtype, MemoryKind batch_kind, const Settings& settings)
      : side_(side), graph_(build_model(settings, network.draw().facts.fields)), rule_(unmoving(settings.rule)) {
    memory_.parameters = numbers_of(sizeof(float));
    memory_.gradients = numbers_of(sizeof(float));
    memory_.owns_gradients = true;
    if (dtype == DType::bf16) memory_.half = numbers_of(sizeof(std::uint16_t));
    stripe_.stripe = {GroupId{}, Rank{}, 0, layout_.count_elements()};
    stripe_.parameters = memory_.parameters;
    stripe_.half = memory_.half;
    for (std::size_t slot = 0; slot < state_slots(rule_.kind); ++slot) stripe_.state[slot] = numbers_of(sizeof(float));
    const BatchLayout batch{rows_of(network), graph_.fields()};
    rows_ = batch.rows();
    batch_ = side_.take(batch.size_bytes(), batch_kind);
    sums_ = side_.take(sizeof(StepSums));
    stream_ = side_.device().stream();
    replica_ = side_.device().compile(graph_, layout_, batch, make_buckets(GroupId{}, graph_, layout_, 0), memory_);
    side_.write(memory_.parameters,
                [&](std::span<std::byte> bytes) { fill_initial(graph_, layout_, 1, numbers<float>(bytes)); });
  }

  std::uint32_t rows() const { return rows_; }

  /// Microseconds of a step, with at most kStepsInFlight enqueued, as a job's device actor does it.
  std::vector<double> run() {
    std::vector<double> found;
    for (std::uint32_t round = 0; round <= side_.what.rounds; ++round) {
      const auto begun = Clock::now();
      for (std::uint32_t i = 0; i < side_.what.repeats; ++i) step();
      finish();
      if (round > 0) found.push_back(us_since(begun) / side_.what.repeats);  // the first one records the program
    }
    return found;
  }

  /// How often the host waits for the GPU in steps like those that have run; nothing: the driver does not count it, or
  /// this is no GPU.
  std::optional<double> host_waits_of_a_step() {
    const auto before = count_host_waits(side_.what);
    if (!before || side_.traits().memory != MemoryKind::device) return std::nullopt;
    for (std::uint32_t i = 0; i < side_.what.repeats; ++i) step();
    finish();
    return static_cast<double>(*count_host_waits(side_.what) - *before) / side_.what.repeats;
  }

 private:
  struct NoSink final : BucketSink {
    void ready(const Bucket&, Stream&) noexcept override {}
  };

  static Settings settings_of(const GpuCase& what, const Network& network, DType dtype) {
    std::vector<std::string> overrides{text("model.dtype=\"", name_of(dtype), '"')};
    overrides.insert(overrides.end(), what.overrides.begin(), what.overrides.end());
    return parse_configuration(std::string(network.settings), "rtbench", overrides).settings;
  }
  /// The numbers stay as they are, however many steps are taken.
  static Rule unmoving(Rule rule) {
    rule.rate = 0;
    return rule;
  }
  std::uint32_t rows_of(const Network& network) const {
    return side_.what.batch > 0 ? side_.what.batch : network.batch;
  }
  Memory numbers_of(std::uint64_t element_bytes) { return side_.take(layout_.count_elements() * element_bytes); }

  void finish() { side_.wait(stream_->mark()); }

  void step() {
    if (++number_ > kStepsInFlight) side_.wait(done_[number_ % kStepsInFlight]);
    stream_->enqueue(programs_, [&] {
      replica_->step(*stream_, batch_, rows_, sums_, sink_);
      stream_->update(rule_step(rule_, number_), number_, stripe_, std::span{&memory_.gradients, 1}, sums_);
      done_[number_ % kStepsInFlight] = stream_->mark();
    });
  }

  Side& side_;
  const Graph graph_;
  const Layout layout_{graph_};
  const Rule rule_;
  ReplicaMemory memory_;
  StripeMemory stripe_;
  std::uint32_t rows_ = 0;
  Memory batch_, sums_;
  std::unique_ptr<Replica> replica_;
  Programs programs_;
  NoSink sink_;
  std::uint64_t number_ = 0;
  std::array<Point, kStepsInFlight> done_{};
  std::unique_ptr<Stream> stream_;  // last: its end waits for the steps that use the others
};

std::string step_of(const Network& network, DType dtype, std::uint32_t rows) {
  return text("step of ", network.name, ' ', name_of(dtype), ", batch ", rows);
}

std::vector<double> measure_steps(Side& side, const Network& network, DType dtype) {
  Trained trained{side, network, dtype, side.traits().memory};
  std::vector<double> us = trained.run();
  const std::string name = step_of(network, dtype, trained.rows());
  side.print(name, "us", us);
  if (const auto waits = trained.host_waits_of_a_step())
    side.print(name + ": host synchronizations", "count", {*waits});
  return us;
}

void measure_device(Side& side) {
  measure_launches(side);
  measure_copies(side);
  add_update_squares(side);
}

/// A job of one rank with actors, loader and exchange, and the bare loop over the same recorded step, whose batch lies
/// in pinned memory as a job's does, by turns.
void compare_job(Blocking& blocking, Side& gpu, const Network& network, DType dtype) {
  Trained bare{gpu, network, dtype, MemoryKind::pinned};
  TrainCase job{.name = gpu.what.network,
                .np = 1,
                .dtype = std::string{name_of(dtype)},
                .seconds = gpu.what.seconds,
                .batch = gpu.what.batch,
                .overrides = gpu.what.overrides};
  job.overrides.emplace_back("placement.device=\"cuda\"");
  std::vector<double> in_jobs, in_loops, ratios;
  for (std::uint32_t round = 0; round < gpu.what.rounds; ++round) {
    in_loops.push_back(Spread{bare.run()}.median());
    in_jobs.push_back(1e6 * bare.rows() / Spread{run_alone(blocking, job).windows(kJobPace)}.median());
    ratios.push_back(in_jobs.back() / in_loops.back());
  }
  const std::string name = step_of(network, dtype, bare.rows());
  gpu.print(name + ", batch in pinned memory", "us", in_loops);
  gpu.print(name + ", in a job", "us", in_jobs);
  gpu.print(name + ": a job's time divided by the bare graph's", "ratio", ratios);
}

/// The other sides may be null: there is no library for products, or nothing is compared.
void compare_steps(Side& gpu, Side* own, Side* cpu, const Network& network, DType dtype) {
  const Spread on_gpu{measure_steps(gpu, network, dtype)};
  const auto compare = [&](Side* other, const char* what) {
    if (other == nullptr) return;
    const double us = Spread{measure_steps(*other, network, dtype)}.median();
    gpu.print(text("step of ", network.name, ' ', name_of(dtype), ": ", what), "ratio", {us / on_gpu.median()});
  };
  compare(own, "own products' time divided by the library's");
  compare(cpu, "the CPU's time divided by the GPU's");
}

std::vector<DType> types_of(const GpuCase& what) {
  if (what.dtype == "f32") return {DType::f32};
  if (what.dtype == "bf16") return {DType::bf16};
  return {DType::f32, DType::bf16};
}

}  // namespace

GpuCommand::GpuCommand(CLI::App& app)
    : command_(app.add_subcommand(
          "gpu", "A GPU compared with the CPU device: launches, copies, an update pass, training steps")) {
  Options options{*command_};
  options.choice("--case", case_.network, "The network", names_of_networks())->capture_default_str();
  options.number("--batch", case_.batch, "Samples per step; 0: as many as rtbench train uses", 0, 1000000)
      ->capture_default_str();
  options.number("--rounds", case_.rounds, "Rounds; each gives one figure", 1, 1000)->capture_default_str();
  options.number("--repeats", case_.repeats, "Steps or launches in a round", 1, 100000)->capture_default_str();
  options.number("--mib", case_.mib, "Size of large copies and of the update pass", 1, 4096)->capture_default_str();
  options.number("--patience", case_.patience, "The longest time of one wait for a device, in seconds", 0.001, 86400.0)
      ->capture_default_str();
  options.number("--threads", case_.threads, "Threads of the CPU device", 1, 1024)->capture_default_str();
  options.choice("--dtype", case_.dtype, "Types of the steps", {"both", "f32", "bf16"})->capture_default_str();
  options
      .list("--part", case_.parts,
            "What to measure: device; steps; job: a job of one rank compared with the bare step; kernels: each own "
            "kernel")
      ->check(CLI::IsMember({"device", "steps", "job", "kernels"}))
      ->capture_default_str();
  options.number("--seconds", case_.seconds, "How long a job trains in each round", 0.1, 600.0)->capture_default_str();
  command_->add_flag("--alone", case_.alone,
                     "Measure only the GPU, without the CPU device, and without own kernels if a library is used");
  command_->add_option("--set", case_.overrides, "Another setting, as in rtrun: section.key=value");
  command_->add_option("--gpu", case_.ordinal, "The number of the GPU, as the driver counts them")
      ->capture_default_str();
  command_->add_flag("--list", case_.list, "Only list the GPUs that the driver reports");
  command_->add_option("--driver", case_.driver, "The driver's library")->capture_default_str();
}

int GpuCommand::run(Blocking& blocking) const {
  if (case_.list) {
    const CudaGpus found = find_cuda_gpus(case_.driver);
    if (!found.refusal.ok()) fail(found.refusal.code(), std::string{found.refusal.text()});
    for (const CudaGpu& gpu : found.gpus)
      std::cout << gpu.model << " at " << gpu.bus << ", " << gpu.memory_bytes << " bytes" << std::endl;
    return 0;
  }
  const auto has = [&](const char* part) { return std::ranges::find(case_.parts, part) != case_.parts.end(); };
  if (has("kernels")) measure_kernels(case_);
  if (case_.parts == std::vector<std::string>{"kernels"}) return 0;
  TROUPE_CHECK(!has("job") || case_.ordinal == 0, Code::invalid,
               "--part job trains on the first GPU: leave out --gpu, or choose one by CUDA_VISIBLE_DEVICES");
  const std::optional<GpuCase> with_library = library_case(case_);
  GpuCase own_products = case_;
  own_products.products = "own";
  Side gpu{"cuda", make_gpu, with_library ? *with_library : own_products};
  say(gpu.traits().description);
  std::unique_ptr<Side> cpu, own;
  if (!case_.alone) {
    cpu = std::make_unique<Side>("cpu", make_cpu, case_);
    say(text("compared with ", cpu->traits().description));
  }
  if (has("device")) measure_device(gpu);
  if (has("device") && cpu) measure_device(*cpu);
  if (has("steps") && with_library && !case_.alone)
    own = std::make_unique<Side>("cuda, own products", make_gpu, own_products);
  for (const DType dtype : types_of(case_)) {
    if (has("steps")) compare_steps(gpu, own.get(), cpu.get(), network_of(case_.network), dtype);
    if (has("job")) compare_job(blocking, gpu, network_of(case_.network), dtype);
  }
  return 0;
}

}  // namespace troupe::bench
