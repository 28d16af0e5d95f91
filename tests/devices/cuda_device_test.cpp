#include "devices/cuda/cuda_device.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "devices/cuda/gpu.hpp"
#include "tests/contracts/device_world.hpp"
#include "tests/contracts/layer_graphs.hpp"
#include "tests/support/gpu.hpp"

// What the CUDA device does beyond the contracts.
namespace troupe {
namespace {

/// Of a device without libraries, whose code takes seconds to load.
std::string refusal(CudaDeviceOptions options) {
  options.products = options.convolutions = "own";
  AddressSpace space;
  try {
    (void)make_cuda_device(space, options);
  } catch (const Error& error) {
    return text(name_of(error.code()), ": ", error.what());
  }
  return "none";
}

/// In a process of its own, where the stand-in plays a machine on which something is wrong.
std::string said_where(const char* variable, const char* value, const std::function<std::string()>& say) {
  return gpu::in_child([&] {
    (void)::setenv(variable, value, 1);
    return say();
  });
}

std::string refusal_where(const char* variable, const char* value) {
  return said_where(variable, value, [] { return refusal({}); });
}

void expect_says(const std::string& said, std::initializer_list<const char*> parts) {
  for (const char* const part : parts) EXPECT_NE(said.find(part), said.npos) << said;
}

TEST(CudaDevice, SaysWhatToDoWithoutADriverOrAGpu) {
  expect_says(refusal({.driver = "libno-such-driver.so.1"}),
              {"environment:", "no usable CUDA driver", "install NVIDIA's driver"});
  expect_says(gpu::in_child([] { return refusal({.ordinal = 77}); }), {"environment:", "no GPU 77"});
}

TEST(CudaDevice, SaysWhatToDoWhereItCannotBeUsed) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real driver has no errors on command";
  expect_says(refusal_where("TROUPE_CUDA_HOST_FAULT", "cuInit=no_device"), {"environment:", "nvidia-smi", "MIG"});
  expect_says(refusal_where("TROUPE_CUDA_HOST_FAULT", "cuInit=not_permitted"), {"environment:", "/dev/nvidia"});
  expect_says(refusal_where("TROUPE_CUDA_HOST_FAULT", "cuInit=system_driver_mismatch"),
              {"environment:", "restart the machine"});
  expect_says(refusal_where("TROUPE_CUDA_HOST_FAULT", "cuDevicePrimaryCtxRetain=device_unavailable"),
              {"environment:", "exclusive mode", "nvidia-smi -c DEFAULT"});
  expect_says(refusal_where("TROUPE_CUDA_HOST_FAULT", "cuDevicePrimaryCtxRetain=ecc_uncorrectable"),
              {"ECC", "reset or replace"});
  expect_says(refusal_where("TROUPE_CUDA_HOST_FAULT", "cuModuleLoadData=no_binary_for_gpu"),
              {"unsupported:", "CUDA toolkit"});
  expect_says(refusal_where("TROUPE_CUDA_HOST_FAULT", "cuModuleLoadData=unsupported_ptx_version"),
              {"unsupported:", "Stand-in at 0000:10:00.0", "driver for CUDA 13.0", "update the driver"});
  expect_says(refusal_where("TROUPE_CUDA_HOST_FAULT", "cuDevicePrimaryCtxRetain=out_of_memory"),
              {"out_of_memory:", "Stand-in at 0000:10:00.0", "end other programs on the GPU (nvidia-smi lists them)"});
  expect_says(refusal_where("TROUPE_CUDA_HOST_FAULT", "cuMemHostAlloc=out_of_memory"),
              {"out_of_memory:", "pinned memory", "memory of the machine, not of the GPU"});
  expect_says(refusal_where("TROUPE_CUDA_HOST_FAULT", "cuInit=stub_library"), {"environment:", "LD_LIBRARY_PATH"});
  expect_says(refusal_where("TROUPE_CUDA_HOST_FAULT", "cuInit=system_not_ready"),
              {"environment:", "start nvidia-fabricmanager"});
  expect_says(refusal_where("TROUPE_CUDA_HOST_DRIVER", "11040"), {"environment:", "11.4", "update it"});
  expect_says(refusal_where("TROUPE_CUDA_HOST_MODE", "prohibited"),
              {"environment:", "prohibited", "nvidia-smi -c DEFAULT"});
}

TEST(CudaDevice, SaysWhatToDoWhereTheMachinesMemoryCannotBeLocked) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real driver has no errors on command";
  for (const char* const error : {"out_of_memory", "not_permitted"}) {
    const std::string said =
        said_where("TROUPE_CUDA_HOST_FAULT", text("cuMemHostRegister_v2=", error).c_str(), []() -> std::string {
          AddressSpace space;
          const auto device = make_cuda_device(space, {});
          const auto arena = Arena::create(arena_id(Peer{0}, 1), 1 << 16);
          space.map(arena);
          try {
            device->prepare(std::array{arena->id()});
          } catch (const Error& failed) {
            return failed.what();
          }
          return "none";
        });
    expect_says(said, {error, "Stand-in at 0000:10:00.0", "ulimit -l", "memory of the machine"});
    EXPECT_EQ(said.find("nvidia"), said.npos) << said;
  }
}

TEST(CudaDevice, SaysThatItMayNotOpenTheDriversFile) {
  const std::filesystem::path file = ::testing::TempDir() + "nvidiactl";
  { std::ofstream{file} << ' '; }
  std::filesystem::permissions(file, std::filesystem::perms::none);
  const auto said = [](const std::string& path) {
    return gpu::in_child([&] {
      constexpr uid_t kNobody = 65534;
      return ::geteuid() == 0 && ::seteuid(kNobody) != 0 ? "no other user" : cuda::why_closed(path.c_str());
    });
  };
  expect_says(said(file), {"this process may not open", "nvidiactl: ask for access, or pass it to the container"});
  std::filesystem::permissions(file, std::filesystem::perms::all);
  EXPECT_EQ(said(file), "");
  std::filesystem::remove(file);
  EXPECT_EQ(said(file), "");
}

/// The GPUs that a process finds where `variable` is set.
std::string found_where(const char* variable, const char* value, const char* driver = gpu::kDriver) {
  return said_where(variable, value, [driver] {
    const CudaGpus found = find_cuda_gpus(driver);
    std::string all = text(found.is_absent ? "absent " : "", found.refusal.text());
    for (const CudaGpu& gpu : found.gpus)
      all += text('[', gpu.bus, ' ', gpu.model, ' ', gpu.memory_bytes, gpu.exclusive ? " exclusive" : "", ']');
    return all;
  });
}

TEST(CudaDevice, TellsWhichGpusThereAreOrWhyThereAreNone) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real driver shows other GPUs";
  EXPECT_EQ(found_where("TROUPE_CUDA_HOST_DEVICES", "2"),
            "[0000:10:00.0 Stand-in 2147483648][0000:11:00.0 Stand-in 2147483648]");
  expect_says(found_where("TROUPE_CUDA_HOST_MODE", "exclusive"), {"[0000:10:00.0 Stand-in 2147483648 exclusive]"});
  expect_says(found_where("TROUPE_CUDA_HOST_MODE", "mig"), {"[0000:10:00.0 Stand-in MIG"});
  expect_says(found_where("TROUPE_CUDA_HOST_SEED", "0", "libno-such-driver.so.1"), {"absent", "no usable CUDA driver"});
  expect_says(found_where("TROUPE_CUDA_HOST_FAULT", "cuInit=no_device"), {"absent", "nvidia-smi"});
  const std::string broken = found_where("TROUPE_CUDA_HOST_FAULT", "cuInit=system_driver_mismatch");
  EXPECT_EQ(broken.find("absent"), broken.npos) << broken;
  expect_says(found_where("TROUPE_CUDA_HOST_MODE", "prohibited"), {"prohibited", "nvidia-smi -c DEFAULT"});
}

TEST(CudaDevice, HasAQueueForEachStreamWhateverTheEnvironmentSays) {
  expect_says(refusal_where("CUDA_LAUNCH_BLOCKING", "1"), {"environment:", "CUDA_LAUNCH_BLOCKING is 1", "unset it"});
  EXPECT_EQ(refusal_where("CUDA_LAUNCH_BLOCKING", "0"), "none");
  const auto queues = [](const char* before) {
    return said_where("CUDA_DEVICE_MAX_CONNECTIONS", before, [] {
      (void)refusal({});
      return std::string{std::getenv("CUDA_DEVICE_MAX_CONNECTIONS")};
    });
  };
  EXPECT_EQ(queues("1"), "32");
  EXPECT_EQ(queues("64"), "64");
}

TEST(CudaDevice, IsFoundByItsPciBusId) {
  if (!gpu::is_stand_in()) GTEST_SKIP() << "a real driver shows other GPUs";
  expect_says(gpu::in_child([] { return refusal({.bus = "0000:77:00.0"}); }),
              {"environment:", "the GPU at 0000:77:00.0", "CUDA_VISIBLE_DEVICES"});
  EXPECT_EQ(gpu::in_child([] { return refusal({.bus = "0000:10:00.0"}); }), "none");
}

struct NoSink final : BucketSink {
  void ready(const Bucket&, Stream&) noexcept override {}
};

class CudaDeviceOnGpu : public contracts::DeviceWorld {
 protected:
  /// Steps that are launched one by one, and recorded ones, train alike. A row of the graph has 12 numbers.
  void replay_steps(const Graph& graph) {
    SCOPED_TRACE(graph.name());
    const Layout layout{graph};
    const BatchLayout rows{5, graph.fields()};
    std::vector<float> start(layout.count_elements());
    fill_initial(graph, layout, 4, start);
    std::vector<Memory> batches, sums;
    for (std::uint64_t b = 0; b < 3; ++b) {
      batches.push_back(arena()->allocate(rows.size_bytes()));
      write(slice(batches.back(), 0, 5 * 12 * sizeof(float)), random_floats(b, 60));
      sums.push_back(put_sums({}));
    }
    std::vector<std::vector<float>> trained;
    for (const bool as_one : {false, true}) {
      Programs programs;
      const auto stream = device().stream();
      const ReplicaMemory memory{put(start), {}, put(std::vector<float>(start.size()))};
      const auto replica = device().compile(graph, layout, rows, make_buckets(GroupId{}, graph, layout, 0), memory);
      NoSink sink;
      StripeMemory stripe{
          .stripe = {GroupId{}, Rank{}, 0, layout.count_elements()}, .parameters = memory.parameters, .half = {}};
      for (std::uint64_t step = 1; step <= 20; ++step) {
        const auto work = [&] {
          const Memory own = sums[step % 3];
          replica->step(*stream, batches[(step / 2) % 3], 5, own, sink);
          stream->update(rule_step({.kind = RuleKind::sgd, .rate = 0.5 / static_cast<double>(step)}, step), step,
                         stripe, std::span{&memory.gradients, 1}, own);
        };
        if (as_one)
          stream->enqueue(programs, work);
        else
          work();
      }
      finish(*stream);
      trained.push_back(get(memory.parameters));
      if (as_one) {
        EXPECT_EQ(programs.recorded(), 1U);
        EXPECT_GT(programs.replayed(), 0U);
      }
    }
    EXPECT_NE(trained[0], start);
    EXPECT_EQ(trained[0], trained[1]);
  }
};

contracts::DeviceCase cuda_case() {
  return {"Gpu", [](AddressSpace& space, std::chrono::milliseconds deadline) {
            return make_cuda_device(space, {.wait_deadline = deadline});
          }};
}

TEST_P(CudaDeviceOnGpu, NamesTheLayerThatItHasNoKernelsFor) {
  const Graph graph{"net",
                    Shape{{8}},
                    DType::f32,
                    {{"a", Dense{4}},
                     {"sum", Add{}, std::vector<std::string>(17, "a")},
                     {"out", Dense{3}},
                     {"loss", SoftmaxCrossEntropy{}}}};
  const Layout layout{graph};
  const ReplicaMemory memory{
      put(std::vector<float>(layout.count_elements())), {}, put(std::vector<float>(layout.count_elements()))};
  try {
    (void)device().compile(graph, layout, BatchLayout{2, graph.fields()}, make_buckets(GroupId{}, graph, layout, 0),
                           memory);
    FAIL() << "it was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    expect_says(error.what(), {"graph net", "layer sum", "add", "17 inputs"});
  }
}

/// What is computed of it, and what a plan says of that without a device, agree.
void expect_agreement(Device& device, const Graph& graph, const ReplicaMemory& memory) {
  const Layout layout{graph};
  bool compiled = true;
  try {
    (void)device.compile(graph, layout, BatchLayout{2, graph.fields()}, make_buckets(GroupId{}, graph, layout, 0),
                         memory);
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), Code::unsupported) << error.what();
    compiled = false;
  }
  EXPECT_EQ(compiled, cuda_refusal(graph, 1).empty()) << graph.to_string() << ": " << cuda_refusal(graph, 1);
}

TEST_P(CudaDeviceOnGpu, RefusesTheGraphsThatAPlanIsToldItRefuses) {
  const Memory all = take(1 << 20), others = take(1 << 20), bf16 = take(1 << 19);
  const auto check = [&](const Graph& graph) {
    const std::uint64_t count = Layout{graph}.count_elements();
    ASSERT_LE(count * sizeof(float), all.size_bytes);
    expect_agreement(device(), graph,
                     {slice(all, 0, count * sizeof(float)),
                      slice(bf16, 0, graph.dtype() == DType::bf16 ? count * sizeof(std::uint16_t) : 0),
                      slice(others, 0, count * sizeof(float))});
  };
  for (const LayerKind* const kind : contracts::kinds_of_layers()) {
    for (std::uint64_t key = 0; key < 4; ++key)
      check(contracts::graph_with(*kind, key, key % 2 == 0 ? DType::f32 : DType::bf16, 6));
  }
  const Graph gathers{
      "gathers",
      Shape{{12}},
      DType::f32,
      {{"a", Dense{9}}, {"n", BatchNorm{.synchronized = true}}, {"b", Dense{3}}, {"loss", SoftmaxCrossEntropy{}}}};
  expect_says(cuda_refusal(gathers, 2), {"layer n", "numbers of other ranks"});
  const std::vector<Layer> chain{{"a", Dense{9}}, {"t", Tanh{}}, {"b", Dense{3}}, {"loss", SoftmaxCrossEntropy{}}};
  check({"chain", Shape{{12}}, DType::f32, chain});
  check({"chain", Shape{{12}}, DType::bf16, chain});
  check({"fork",
         Shape{{12}},
         DType::f32,
         {{"a", Dense{9}},
          {"b", Dense{9}, {"a"}},
          {"c", Add{}, {"a", "b"}},
          {"d", Dense{3}, {"c"}},
          {"loss", SoftmaxCrossEntropy{}}}});
  check({"many",
         Shape{{12}},
         DType::f32,
         {{"a", Dense{9}},
          {"sum", Add{}, std::vector<std::string>(17, "a")},
          {"out", Dense{3}},
          {"loss", SoftmaxCrossEntropy{}}}});
}

/// A chain of dense layers; a network with a batch norm, dropped elements and a tensor that several layers read.
std::vector<Graph> graphs_to_replay() {
  return {{"chain",
           Shape{{12}},
           DType::f32,
           {{"a", Dense{9}}, {"t", Tanh{}}, {"b", Dense{3}}, {"loss", SoftmaxCrossEntropy{}}}},
          {"net",
           Shape{{4, 3, 1}},
           DType::f32,
           {{"c", Conv2d{.filters = 3, .kernel = {3, 3}, .padding = {1, 1}}},
            {"n", BatchNorm{}},
            {"r", Relu{}},
            {"s", Add{}, {"r", "c"}},
            {"d", Dropout{}},
            {"out", Dense{3}},
            {"loss", SoftmaxCrossEntropy{}}}}};
}

TEST_P(CudaDeviceOnGpu, ReplaysStepsWithOtherBatchesRatesAndSums) {
  for (const Graph& graph : graphs_to_replay()) replay_steps(graph);
}

TEST_P(CudaDeviceOnGpu, ReplaysStepsWithoutAHostThatWaitsForTheGpu) {
  constexpr const char* kCountingDriver = "libcuda_calls.so";
  AddressSpace own;
  const auto counted = make_cuda_device(own, {.driver = kCountingDriver});
  void* const driver = ::dlopen(kCountingDriver, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(driver, nullptr) << ::dlerror();
  const auto waits = reinterpret_cast<unsigned long (*)()>(::dlsym(driver, "troupe_cuda_calls_waits"));
  const Graph graph{"net",
                    Shape{{12}},
                    DType::f32,
                    {{"a", Dense{9}}, {"r", Relu{}}, {"b", Dense{3}}, {"loss", SoftmaxCrossEntropy{}}}};
  const Layout layout{graph};
  const BatchLayout rows{5, graph.fields()};
  const std::uint64_t bytes = layout.count_elements() * sizeof(float);
  std::uint32_t arenas = 0;
  const auto take = [&](std::uint64_t size) {
    return counted->allocate(arena_id(Peer{0}, ++arenas), MemoryKind::device, size);
  };
  const ReplicaMemory memory{take(bytes), {}, take(bytes)};
  const Memory batch = take(rows.size_bytes()), sums = take(sizeof(StepSums));
  StripeMemory stripe{
      .stripe = {GroupId{}, Rank{}, 0, layout.count_elements()}, .parameters = memory.parameters, .half = {}};
  Programs programs;
  const auto stream = counted->stream();
  const auto replica = counted->compile(graph, layout, rows, make_buckets(GroupId{}, graph, layout, 0), memory);
  NoSink sink;
  const auto steps = [&](std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t step = first; step <= last; ++step)
      stream->enqueue(programs, [&] {
        replica->step(*stream, batch, 5, sums, sink);
        stream->update(rule_step({.kind = RuleKind::sgd, .rate = 0.5}, step), step, stripe,
                       std::span{&memory.gradients, 1}, sums);
      });
    const Point end = stream->mark();
    Blocking blocking = Blocking::on_thread("test");
    return own.timeline(end.line).wait(blocking, end.value, Deadline::after(std::chrono::seconds{30}), "steps");
  };
  ASSERT_TRUE(steps(1, 8).ok());
  const unsigned long before = waits();
  EXPECT_GT(before, 0U) << "memory is cleared by a call that waits, which was not counted";
  const std::uint64_t replayed = programs.replayed();
  ASSERT_TRUE(steps(9, 40).ok());
  EXPECT_EQ(waits(), before);
  EXPECT_GT(programs.replayed(), replayed);
}

TEST_P(CudaDeviceOnGpu, EndsAStreamWhoseBatchHasALabelThatIsNoClass) {
  const Graph graph{"net", Shape{{4}}, DType::f32, {{"a", Dense{3}}, {"loss", SoftmaxCrossEntropy{}}}};
  const Layout layout{graph};
  const BatchLayout rows{2, graph.fields()};
  const ReplicaMemory memory{
      put(std::vector<float>(layout.count_elements())), {}, put(std::vector<float>(layout.count_elements()))};
  const auto replica = device().compile(graph, layout, rows, make_buckets(GroupId{}, graph, layout, 0), memory);
  const Memory batch = arena()->allocate(rows.size_bytes());
  write(slice(batch, rows.entry(kLabel).offset, 2 * sizeof(std::int32_t)), std::vector<std::int32_t>{1, 3});
  const Memory total = put_sums({.samples = 9});
  const auto stream = device().stream();
  replica->evaluate(*stream, batch, 2, total);
  const Status status = reach(stream->mark());
  EXPECT_EQ(status.code(), Code::corrupt);
  expect_says(std::string{status.text()}, {"row 1", "label 3"});
  EXPECT_EQ(value<StepSums>(total).samples, 9U) << "what follows in the stream was done";
}

TEST_P(CudaDeviceOnGpu, EndsAStreamWhoseBatchHasATokenThatTheModelDoesNotKnow) {
  const Graph graph{"net",
                    {{"tokens", Shape{{3}}, DType::i32, 5}, {std::string{kLabel}, {}, DType::i32}},
                    DType::f32,
                    {{"e", Embedding{5, 2}}, {"out", Dense{3}}, {"loss", SoftmaxCrossEntropy{}}}};
  const Layout layout{graph};
  const BatchLayout rows{2, graph.fields()};
  const ReplicaMemory memory{
      put(std::vector<float>(layout.count_elements())), {}, put(std::vector<float>(layout.count_elements()))};
  const auto replica = device().compile(graph, layout, rows, make_buckets(GroupId{}, graph, layout, 0), memory);
  const Memory batch = arena()->allocate(rows.size_bytes());
  write(slice(batch, rows.entry("tokens").offset, 6 * sizeof(std::int32_t)),
        std::vector<std::int32_t>{4, -1, 0, 1, 5, 2});
  const auto stream = device().stream();
  replica->evaluate(*stream, batch, 2, put_sums({}));
  const Status status = reach(stream->mark());
  EXPECT_EQ(status.code(), Code::corrupt);
  expect_says(std::string{status.text()}, {"place 4", "token 5"});
}

TEST_P(CudaDeviceOnGpu, EndsAStreamWhoseBatchHasATargetAboveOne) {
  const Graph graph{"net",
                    {{std::string{kImage}, Shape{{4}}, DType::f32}, {"wanted", Shape{{3}}, DType::f32}},
                    DType::f32,
                    {{"a", Dense{3}}, {"loss", SigmoidCrossEntropy{}, {"a", "wanted"}}}};
  const Layout layout{graph};
  const BatchLayout rows{2, graph.fields()};
  const ReplicaMemory memory{
      put(std::vector<float>(layout.count_elements())), {}, put(std::vector<float>(layout.count_elements()))};
  const auto replica = device().compile(graph, layout, rows, make_buckets(GroupId{}, graph, layout, 0), memory);
  const Memory batch = arena()->allocate(rows.size_bytes());
  write(slice(batch, rows.entry("wanted").offset, 6 * sizeof(float)), std::vector<float>{0, 1, -1, 0.5F, 2, 1});
  const auto stream = device().stream();
  replica->evaluate(*stream, batch, 2, put_sums({}));
  const Status status = reach(stream->mark());
  EXPECT_EQ(status.code(), Code::corrupt);
  expect_says(std::string{status.text()}, {"row 1", "targets above 1"});
}

TEST_P(CudaDeviceOnGpu, SignalsAndWaitsForLinesOfThisProcessThatNoGpuReaches) {
  const PrivateTimeline gate{space()}, told{space()};
  const auto stream = device().stream();
  const Memory from = put({1}), to = put({0});
  stream->wait({gate.id(), 3});
  stream->copy(to, from);
  stream->signal({told.id(), 5});
  gate.line().signal(3);
  EXPECT_TRUE(reach({told.id(), 5}).ok());
  EXPECT_EQ(get(to), std::vector<float>{1});
  stream->wait({gate.id(), 4});
  const Point behind = stream->mark();
  gate.line().poison({Code::peer_lost, "rank 2 is gone"});
  EXPECT_EQ(reach(behind).code(), Code::peer_lost);
}

/// As when the kernel gives a new arena the address of one that has ended.
TEST_P(CudaDeviceOnGpu, ReachesMemoryWhereAnotherDeviceReachedAnArenaThatHasEnded) {
  Blocking blocking = Blocking::on_thread("test");
  std::vector<float> place(1 << 12, 1);
  const auto region = [&](std::uint32_t id) {
    return Region{arena_id(Peer{0}, id), reinterpret_cast<std::byte*>(place.data()), place.size() * sizeof(float)};
  };
  AddressSpace other_space;
  auto other = GetParam().make(other_space, std::chrono::seconds{20});
  other_space.bind(region(7));
  other->prepare(std::array{region(7).id});
  ASSERT_TRUE(other_space.unmap(blocking, region(7).id));
  space().bind(region(8));
  device().prepare(std::array{region(8).id});
  const PrivateTimeline gate{space()};
  const auto stream = device().stream();
  const Memory to = put({0});
  stream->wait({gate.id(), 1});
  stream->copy(to, {region(8).id, 0, to.size_bytes});
  other.reset();  // ends what it has made known to the driver, while the copy is still to come
  gate.line().signal(1);
  finish(*stream);
  EXPECT_EQ(get(to), std::vector<float>{1});
  EXPECT_TRUE(space().unmap(blocking, region(8).id));
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaDeviceOnGpu, ::testing::Values(cuda_case()), contracts::case_name);

}  // namespace
}  // namespace troupe
