// Which rank of made-up nodes computes on which GPU, and what is refused.

#include <gmock/gmock.h>

#include "tests/runtime/planning/placed_nodes.hpp"

namespace troupe {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace troupe::testing;

Settings with_device(const std::string& device) {
  Settings settings;
  settings.placement.device = device;
  return settings;
}

Plan plan_of(const std::string& device, const PlanInputs& inputs) {
  return make_plan(with_device(device), small_mlp(), inputs);
}

std::vector<std::string> gpus_of(const Plan& plan) {
  std::vector<std::string> gpus;
  for (const RankPlan& rank : plan.ranks) gpus.push_back(rank.gpu);
  return gpus;
}

TEST(Devices, RanksOfANodeTakeItsGpusInTurnAndHaveCoresNearThem) {
  for (const char* const device : {"auto", "cuda"}) {
    const Plan plan = plan_of(device, inputs_on({with_gpus("a", {1, 0})}, {4}));
    EXPECT_THAT(gpus_of(plan), ElementsAre("0000:10:00.0", "0000:11:00.0", "0000:10:00.0", "0000:11:00.0"));
    EXPECT_THAT(plan.ranks, Each(Field(&RankPlan::device, "cuda")));
    EXPECT_THAT(plan.ranks[0].numa_nodes, ElementsAre(1));
    EXPECT_THAT(plan.ranks[3].numa_nodes, ElementsAre(0));
    EXPECT_THAT(plan.reasons, Contains(HasSubstr("4 ranks compute on 2 GPUs, which they take in turn")));
    EXPECT_THAT(describe(plan), AllOf(HasSubstr("cuda 0000:10:00.0"), HasSubstr("H100"), HasSubstr("of 80.0 GB")));
  }
}

TEST(Devices, ARankTakesOnlyAGpuThatItsProcessSees) {
  PlanInputs inputs = inputs_on({with_gpus("a", {0, 1})}, {2});
  inputs.ranks[0].gpus = {{.name = "GPU 1", .nearest_nics = {}, .bus = "0000:11:00.0", .reaches = {}}};
  inputs.ranks[1].gpus = {{.name = "GPU 0", .nearest_nics = {}, .bus = "0000:10:00.0", .reaches = {}}};
  EXPECT_THAT(gpus_of(plan_of("cuda", inputs)), ElementsAre("0000:11:00.0", "0000:10:00.0"));
  inputs.ranks[1].gpus.emplace().clear();
  EXPECT_THAT(gpus_of(plan_of("auto", inputs)), ElementsAre("0000:11:00.0", ""));
  EXPECT_THAT(refusal([&] { plan_of("cuda", inputs); }, Code::environment),
              AllOf(HasSubstr("rank 1 on node a sees no GPU"), HasSubstr("CUDA_VISIBLE_DEVICES")));
}

TEST(Devices, RanksTrainInGpuMemoryWhereTheirGpusReachEachOther) {
  Topology node = with_gpus("a", {0, 1});
  node.accelerators[0].reaches = {"0000:11:00.0"};
  node.accelerators[1].reaches = {"0000:10:00.0"};
  PlanInputs inputs = inputs_on({node}, {3});
  for (RankFacts& rank : inputs.ranks) rank.gpus = node.accelerators;
  EXPECT_TRUE(plan_of("cuda", inputs).in_gpu_memory);
  for (RankFacts& rank : inputs.ranks) rank.gpus->at(1).reaches.clear();
  const Plan apart = plan_of("cuda", inputs);
  EXPECT_FALSE(apart.in_gpu_memory);
  EXPECT_THAT(apart.reasons, Contains(HasSubstr("the GPU of rank 1 does not reach the memory of rank 0's")));
  inputs.ranks.resize(1);
  EXPECT_TRUE(plan_of("cuda", inputs).in_gpu_memory) << "it is alone";
}

TEST(Devices, GpusAreLeftOutWhereTheyAreNotWantedOrNotThere) {
  EXPECT_THAT(plan_of("cpu", inputs_on({with_gpus("a", {0})}, {2})).ranks, Each(Field(&RankPlan::device, "cpu")));
  EXPECT_THAT(plan_of("auto", inputs_on({made_node("a")}, {2})).ranks, Each(Field(&RankPlan::device, "cpu")));
  EXPECT_THAT(refusal([] { plan_of("cuda", inputs_on({made_node("a")}, {2})); }, Code::environment),
              HasSubstr("placement.device = \"cuda\": rank 0 on node a sees no GPU"));
}

TEST(Devices, AFilesGpusCountOnlyWhereTheyAreAskedFor) {
  Topology node = with_gpus("a", {0});
  node.accelerators[0].cuda = false;
  EXPECT_THAT(gpus_of(plan_of("cuda", inputs_on({node}, {1}))), ElementsAre("0000:10:00.0"));
  EXPECT_THAT(gpus_of(plan_of("auto", inputs_on({node}, {1}))), ElementsAre(""));
  node.accelerators[0].vendor = "amd";
  EXPECT_THAT(refusal([&] { plan_of("cuda", inputs_on({node}, {1})); }, Code::environment), HasSubstr("sees no GPU"));
}

TEST(Devices, AModelThatCudaCannotComputeGetsCpusOrIsRefused) {
  PlanInputs inputs = inputs_on({with_gpus("a", {0})}, {1});
  inputs.cuda_refusal = "a cuda device cannot compute layer conv1";
  const Plan plan = plan_of("auto", inputs);
  EXPECT_EQ(plan.ranks[0].device, "cpu");
  EXPECT_THAT(plan.reasons,
              Contains(HasSubstr("its GPUs are left out, since a cuda device cannot compute layer conv1")));
  EXPECT_THAT(refusal([&] { plan_of("cuda", inputs); }, Code::unsupported), HasSubstr("layer conv1"));
}

TEST(Devices, AGpuInExclusiveModeTakesOneRank) {
  Topology node = with_gpus("a", {0});
  node.accelerators[0].exclusive = true;
  EXPECT_THAT(gpus_of(plan_of("auto", inputs_on({node}, {2}))), ElementsAre("0000:10:00.0", ""));
  EXPECT_THAT(refusal([&] { plan_of("cuda", inputs_on({node}, {2})); }),
              AllOf(HasSubstr("2 ranks on node a, and 1 GPU in exclusive mode"), HasSubstr("nvidia-smi -c DEFAULT")));
}

TEST(Devices, MemoryThatAGpuDoesNotHaveIsRefused) {
  Topology node = with_gpus("a", {0});
  const Plan one = plan_of("cuda", inputs_on({node}, {1}));
  node.accelerators[0].memory_bytes = one.ranks[0].gpu_bytes;
  const Plan fits = plan_of("cuda", inputs_on({node}, {1}));
  EXPECT_EQ(fits.nodes[0].gpus[0].used, fits.nodes[0].gpus[0].there);
  EXPECT_THAT(refusal([&] { plan_of("cuda", inputs_on({node}, {2})); }),
              AllOf(HasSubstr("node a: GPU 0 (H100) at 0000:10:00.0 has"), HasSubstr("its 2 ranks take")));
}

TEST(Devices, ARankOnAGpuTakesLessOfTheHostsMemory) {
  const PlanInputs inputs = inputs_on({with_gpus("a", {0})}, {2});
  const Plan on_gpus = plan_of("cuda", inputs), on_cpus = plan_of("cpu", inputs);
  EXPECT_TRUE(on_gpus.in_gpu_memory);
  EXPECT_FALSE(on_cpus.in_gpu_memory);
  EXPECT_LT(on_gpus.ranks[0].memory_bytes, on_cpus.ranks[0].memory_bytes);
  EXPECT_GT(on_gpus.ranks[0].gpu_bytes, on_gpus.parameters * sizeof(float));
  Settings hosted = with_device("cuda");
  hosted.update.kind = PolicyKind::async;
  EXPECT_FALSE(make_plan(hosted, small_mlp(), inputs).in_gpu_memory);
}

TEST(Devices, RanksOnGpusAndOnCpusTrainInMemoryThatBothReach) {
  const Plan plan = plan_of("auto", inputs_on({with_gpus("a", {0}), made_node("b")}, {1, 1}));
  EXPECT_THAT(gpus_of(plan), ElementsAre("0000:10:00.0", ""));
  EXPECT_FALSE(plan.in_gpu_memory);
  EXPECT_THAT(plan.reasons, Contains(HasSubstr("all train in the hosts' memory")));
}

}  // namespace
}  // namespace troupe
