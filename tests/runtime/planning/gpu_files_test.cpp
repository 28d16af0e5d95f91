// Steps of ranks on the GPUs of real machines, which their descriptions tell of.

#include <gmock/gmock.h>

#include <filesystem>

#include "runtime/planning/cost_model.hpp"
#include "runtime/planning/gpu_models.hpp"
#include "runtime/planning/hypothetical_cluster.hpp"
#include "runtime/planning/machine_topology.hpp"
#include "runtime/topology/reading.hpp"
#include "tests/runtime/planning/placed_nodes.hpp"
#include "tests/runtime/topology/machines.hpp"

namespace troupe {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using namespace troupe::testing;

const std::string kMachines = TROUPE_SHARED_FOLDER "/topologies/";

/// A step on 16 GPUs of machines of one kind, of which nothing was measured.
struct FileJob {
  topology::Machine machine;
  Topology node;
  Settings settings;
  std::string file;

  explicit FileJob(const std::string& name) : file(name) {
    machine = topology::machine_from(topology::read_topology_file(kMachines + name), name);
    node = planning_topology(machine);
    settings.placement.device = "cuda";
    settings.data.batch = 64;
  }
  Plan plan(std::uint32_t gpus = 16) const {
    const MachineGroup kind{.source = file, .topology = node};
    PlanInputs inputs = hypothetical_cluster(settings.placement, std::span{&kind, 1}, {.what_if = {.gpus = gpus}});
    inputs.train_samples = 60'000;
    return make_plan(settings, small_mlp(), inputs);
  }
  Prediction predicted(std::uint32_t gpus = 16) const {
    CostFigures figures{.measured = {}, .assumed = assumed_figures(node)};
    add_modelled_gpus(machine, figures.assumed);
    const Graph graph = small_mlp();
    return predict(plan(gpus), graph, layout_of(settings, graph), figures, 10);
  }
  double figure(const std::string& what, std::uint32_t gpus = 16) const {
    for (const UsedFigure& used : predicted(gpus).figures)
      if (used.what.find(what) != std::string::npos) return used.value;
    return 0;
  }
};

class GpusOfFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kMachines)) GTEST_SKIP() << kMachines << " is not here: real machines are not tested";
  }
};

TEST_F(GpusOfFiles, HaveAPredictedStepWhoseEveryPartIsMarkedAsModelled) {
  for (const char* const file :
       {"nccl/azure-ndv4-topo.xml", "nccl/azure-ndv2-topo.xml", "nccl/azure-ncv4-topo.xml",
        "nccl/aws-p4d-24xl-topo.xml", "nccl/aws-p4de-24xl-topo.xml", "nccl/oci-bm-gpu-h100-8.xml",
        "nccl/oci-bm-gpu-b4-flattened.xml", "hwloc/hwloc-nvidia-dgx2-adapted.xml", "hwloc/mpibind-coral-lassen.xml",
        "hwloc/mpibind-cts1-pascal.xml", "hwloc/mpibind-g4dnmetal.xml", "test-only/psmgmt-jwb0004.xml"}) {
    SCOPED_TRACE(file);
    const FileJob job{file};
    const Prediction found = job.predicted();
    EXPECT_EQ(describe(found), describe(job.predicted())) << "the same once more";
    for (const StepPart part : {StepPart::compute, StepPart::update, StepPart::exchange}) {
      EXPECT_GT(found.mean[part], 0) << name_of(part);
      EXPECT_LT(found.mean[part], 0.1) << name_of(part);
      EXPECT_TRUE(found.mean.modelled.at(static_cast<std::size_t>(part))) << name_of(part);
    }
    EXPECT_THAT(found.basis, Contains(AllOf(HasSubstr("No figures of"), HasSubstr("peaks that follow from"))));
  }
}

TEST_F(GpusOfFiles, HaveTheRatesOfTheirDataSheets) {
  const FileJob a100{"nccl/aws-p4d-24xl-topo.xml"}, h100{"nccl/oci-bm-gpu-h100-8.xml"},
      v100{"hwloc/hwloc-nvidia-dgx2-adapted.xml"};
  EXPECT_NEAR(a100.figure("within a GPU's memory"), 1555, 1);
  EXPECT_NEAR(a100.figure("products in f32"), 19.5, 0.1);
  EXPECT_NEAR(h100.figure("within a GPU's memory"), 3350, 1);
  EXPECT_NEAR(h100.figure("products in f32"), 66.9, 0.1);
  EXPECT_NEAR(v100.figure("products in f32"), 15.7, 0.1);
}

TEST_F(GpusOfFiles, ExchangeOverTheLinksThatTheFileHas) {
  // GPUs of one DGX-2 over NVLink; two of Oracle's machines with 8 each over their NICs.
  const FileJob dgx{"hwloc/hwloc-nvidia-dgx2-adapted.xml"}, h100{"nccl/oci-bm-gpu-h100-8.xml"};
  EXPECT_TRUE(dgx.plan().uses_nccl());
  EXPECT_EQ(dgx.plan().nodes.size(), 1U);
  EXPECT_NEAR(dgx.figure("slowest link", 8), 150, 1) << "NVLink within a half";
  EXPECT_NEAR(dgx.figure("slowest link"), 150, 1) << "and between the halves, whose switches are one fabric";
  EXPECT_EQ(h100.plan().nodes.size(), 2U);
  EXPECT_NEAR(h100.figure("all its network devices"), 8 * 22.5, 0.1) << "eight ports of 180 Gbit/s";
  EXPECT_NEAR(h100.figure("slowest link"), 370, 20) << "18 NVLinks";
}

TEST_F(GpusOfFiles, ThatNamesNoVendorCountWhereTheyAreAskedFor) {
  const FileJob azure{"nccl/azure-ndv4-topo.xml"};
  EXPECT_EQ(azure.plan().ranks[0].device, "cuda");
  EXPECT_THAT(azure.predicted().basis, Contains(HasSubstr("the data sheet of a T4, since its model is not known")));
}

TEST_F(GpusOfFiles, RefusesWhatDoesNotFitWithTheLargestPartAndWhatToDoFirst) {
  FileJob pascal{"hwloc/mpibind-cts1-pascal.xml"};
  pascal.settings.data.batch = 4'000'000;
  EXPECT_THAT(refusal([&] { pascal.plan(2); }),
              AllOf(HasSubstr("Tesla P100-PCIE-16GB"), HasSubstr("has 17.1 GB of memory, and its 1 rank takes"),
                    HasSubstr("rank 0 for activations"), HasSubstr("write a smaller data.batch than 4000000")));
}

TEST(ModelledGpus, FollowFromWhatNvmlTells) {
  topology::Machine machine = topology::testing::two_sockets();
  for (topology::Gpu& gpu : machine.gpus) {
    gpu.architecture = "sm_80";
    gpu.cores = 6912, gpu.most_clock_mhz = 1410, gpu.most_memory_clock_mhz = 1215, gpu.memory_bus_bits = 5120;
  }
  topology::Measurements figures;
  add_modelled_gpus(machine, figures);
  ASSERT_EQ(figures.gpus.size(), 4U);
  const topology::GpuFigure& gpu = figures.gpus.front();
  EXPECT_NEAR(gpu.bytes_per_second.median, 1555e9, 1e9);
  EXPECT_NEAR(gpu.compute.at(0).flops_per_second.median, 19.5e12, 1e11);
  EXPECT_NEAR(gpu.compute.at(1).flops_per_second.median, 156e12, 1e12) << "TF32";
  EXPECT_NEAR(gpu.compute.at(2).flops_per_second.median, 312e12, 1e12) << "bf16";
  EXPECT_THAT(gpu.modelled_from, HasSubstr("what NVML tells: 6912 cores at 1410 MHz"));
  EXPECT_EQ(figures.gpu_links.size(), 4U * 3 + 2 * 4);
}

}  // namespace
}  // namespace troupe
