#include "devices/cuda/cuda_device.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

#include "tests/contracts/device_world.hpp"

// What the CUDA device does beyond the contracts, over the stand-in for the driver.
namespace troupe {
namespace {

std::string refusal(const CudaDeviceOptions& options) {
  AddressSpace space;
  try {
    (void)make_cuda_device(space, options);
  } catch (const Error& error) {
    return text(name_of(error.code()), ": ", error.what());
  }
  return "none";
}

/// In a process of its own, where the stand-in plays a machine on which something is wrong.
std::string refusal_where(const char* variable, const char* value) {
  std::array<int, 2> pipe_ends{};
  if (::pipe(pipe_ends.data()) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::setenv(variable, value, 1);
    const std::string said = refusal({.driver = TROUPE_CUDA_HOST});
    const ssize_t written = ::write(pipe_ends[1], said.data(), said.size());
    ::_exit(written == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  (void)::close(pipe_ends[1]);
  std::array<char, 4096> said{};
  const ssize_t size = ::read(pipe_ends[0], said.data(), said.size());
  (void)::close(pipe_ends[0]);
  int status = 0;
  (void)::waitpid(child, &status, 0);
  return {said.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

void expect_says(const std::string& said, std::initializer_list<const char*> parts) {
  for (const char* const part : parts) EXPECT_NE(said.find(part), said.npos) << said;
}

TEST(CudaDevice, SaysWhatToDoWhereItCannotBeUsed) {
  expect_says(refusal({.driver = "libno-such-driver.so.1"}),
              {"environment:", "no usable CUDA driver", "install NVIDIA's driver"});
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
  expect_says(refusal_where("TROUPE_CUDA_HOST_FAULT", "cuMemHostAlloc=out_of_memory"),
              {"out_of_memory:", "pinned memory"});
  expect_says(refusal_where("TROUPE_CUDA_HOST_DRIVER", "11040"), {"environment:", "11.4", "update it"});
  expect_says(refusal_where("TROUPE_CUDA_HOST_MODE", "prohibited"),
              {"environment:", "prohibited", "nvidia-smi -c DEFAULT"});
  expect_says(refusal({.ordinal = 77, .driver = TROUPE_CUDA_HOST}), {"environment:", "no GPU 77"});
}

class CudaDeviceOnStandIn : public contracts::DeviceWorld {
 protected:
  /// Steps that are launched one by one, and recorded ones, train alike. A row of the graph has 12 numbers.
  void replay_steps(const Graph& graph) {
    SCOPED_TRACE(graph.name());
    const Layout layout{graph};
    const BatchLayout rows{5, graph.fields()};
    std::vector<float> start(layout.count_elements());
    fill_initial(graph, layout, 4, start);
    struct NoSink final : BucketSink {
      void ready(const Bucket&, Stream&) noexcept override {}
    };
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
          .stripe = {GroupId{}, Rank{}, 0, layout.count_elements()}, .parameters = memory.parameters, .bf16 = {}};
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
  return {"StandIn", [](AddressSpace& space, std::chrono::milliseconds deadline) {
            return make_cuda_device(space, {.wait_deadline = deadline, .driver = TROUPE_CUDA_HOST});
          }};
}

TEST_P(CudaDeviceOnStandIn, NamesTheLayerThatItHasNoKernelsFor) {
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

TEST_P(CudaDeviceOnStandIn, ReplaysStepsWithOtherBatchesRatesAndSums) {
  for (const Graph& graph : graphs_to_replay()) replay_steps(graph);
}

TEST_P(CudaDeviceOnStandIn, EndsAStreamWhoseBatchHasALabelThatIsNoClass) {
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

TEST_P(CudaDeviceOnStandIn, EndsAStreamWhoseBatchHasATokenThatTheModelDoesNotKnow) {
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

TEST_P(CudaDeviceOnStandIn, EndsAStreamWhoseBatchHasATargetAboveOne) {
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

TEST_P(CudaDeviceOnStandIn, SignalsAndWaitsForLinesOfThisProcessThatNoGpuReaches) {
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

INSTANTIATE_TEST_SUITE_P(Cuda, CudaDeviceOnStandIn, ::testing::Values(cuda_case()), contracts::case_name);

}  // namespace
}  // namespace troupe
