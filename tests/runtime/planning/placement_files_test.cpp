// Every description of a real machine is planned for under every policy: the plan is sound, or the error names what is
// lacking.

#include <gmock/gmock.h>

#include <filesystem>

#include "runtime/planning/hypothetical_cluster.hpp"
#include "runtime/planning/machine_topology.hpp"
#include "runtime/planning/rank_orders.hpp"
#include "runtime/topology/reading.hpp"
#include "tests/runtime/planning/placed_nodes.hpp"
#include "tests/runtime/topology/machines.hpp"

namespace troupe {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace troupe::testing;

const std::string kMachines = TROUPE_SHARED_FOLDER "/topologies";

std::vector<std::string> files_of_machines() {
  std::vector<std::string> files;
  for (const char* const folder : {"hwloc", "nccl", "test-only"})
    for (const auto& entry : std::filesystem::directory_iterator{kMachines + '/' + folder}) {
      const std::string text = topology::read_topology_file(entry.path());
      if (topology::format_of(text, "file") != topology::Format::nccl_graphs) files.push_back(entry.path());
    }
  std::sort(files.begin(), files.end());
  return files;
}

struct Wish {
  std::string policy;
  std::uint32_t cores = 0;
  std::uint32_t ranks = 0;  // 0: by the policy
};

/// Whether a plan was made.
bool plans_soundly(const topology::Machine& machine, const std::string& file, const Wish& wish) {
  SCOPED_TRACE(::testing::Message() << file << ' ' << wish.policy << ' ' << wish.cores << " cores, " << wish.ranks
                                    << " ranks");
  const Settings settings = with_policy(wish.policy, wish.cores);
  const MachineGroup kind{.source = file, .count = 2, .topology = planning_topology(machine)};
  PlanInputs inputs;
  try {
    inputs = hypothetical_cluster(settings.placement, std::span{&kind, 1}, {.ranks = wish.ranks});
    inputs.train_samples = 60'000;
    const Plan plan = make_plan(settings, small_mlp(), inputs);
    expect_sound(plan, inputs.topologies);
    EXPECT_EQ(make_plan(settings, small_mlp(), inputs).to_string(), plan.to_string());
    std::vector<const topology::Machine*> machines(plan.nodes.size(), &machine);
    std::vector<const Topology*> topologies(plan.nodes.size(), &kind.topology);
    EXPECT_EQ(rank_orders(plan, machines, topologies).ring.order.size(), plan.ranks.size());
    EXPECT_FALSE(describe(plan).empty());
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2) << error.what();
    EXPECT_THAT(error.what(), AnyOf(HasSubstr("describes no core"), HasSubstr("cores"), HasSubstr("NUMA node"),
                                    HasSubstr("network device"), HasSubstr("memory")));
    EXPECT_THAT(error.what(), AnyOf(HasSubstr(kind.topology.host), HasSubstr(file)));
    return false;
  }
}

TEST(PlacementOfFiles, EveryMachineIsPlannedSoundlyUnderEveryPolicy) {
  if (!std::filesystem::exists(kMachines)) GTEST_SKIP() << kMachines << " is not here: real machines are not tested";
  const std::vector<std::string> files = files_of_machines();
  EXPECT_GE(files.size(), 40u);
  std::size_t planned = 0;
  std::size_t refused = 0;
  for (const std::string& file : files) {
    const topology::Machine machine = topology::machine_from(topology::read_topology_file(file), file);
    for (const char* const policy : {"auto", "spread", "pack"})
      for (const Wish& wish :
           {Wish{policy}, {policy, 2}, {policy, 0, 2}, {policy, 1, 6}, {policy, 0, 26}, {policy, 40, 2}})
        ++(plans_soundly(machine, file, wish) ? planned : refused);
  }
  RecordProperty("planned", static_cast<int>(planned));
  RecordProperty("refused", static_cast<int>(refused));
  EXPECT_GT(planned, refused);
}

TEST(PlacementOfFiles, RanksOfARealMachineAreNearTheirGpusAndNics) {
  if (!std::filesystem::exists(kMachines)) GTEST_SKIP() << kMachines << " is not here: real machines are not tested";
  const std::string file = kMachines + "/nccl/oci-bm-gpu-h100-8.xml";
  const topology::Machine machine = topology::machine_from(topology::read_topology_file(file), file);
  const MachineGroup kind{.source = "h100.xml", .count = 2, .topology = planning_topology(machine)};
  PlanInputs inputs = hypothetical_cluster({}, std::span{&kind, 1}, {});
  inputs.train_samples = 60'000;
  const Plan plan = make_plan({}, small_mlp(), inputs);
  ASSERT_EQ(plan.ranks.size(), 16u);
  std::set<std::string> devices;
  for (const RankPlan& rank : plan.ranks) {
    const auto gpu = std::find_if(kind.topology.accelerators.begin(), kind.topology.accelerators.end(),
                                  [&](const Accelerator& each) { return each.name == rank.accelerator; });
    ASSERT_NE(gpu, kind.topology.accelerators.end());
    EXPECT_THAT(rank.numa_nodes, ElementsAre(kind.topology.numa[static_cast<std::size_t>(gpu->numa)].os_index));
    const std::string nic = rank.network_device.substr(0, rank.network_device.find(':'));
    EXPECT_THAT(gpu->nearest_nics, ::testing::Contains(nic));
    if (rank.node == 0) devices.insert(nic);
  }
  EXPECT_EQ(devices.size(), 8u) << "each GPU has a NIC of its own";
}

TEST(PlacementOfFiles, AMachineBecomesWhatAPlanNeedsOfIt) {
  topology::Machine machine = topology::testing::two_sockets();
  const Topology small = planning_topology(machine);
  EXPECT_EQ(small.cores.size(), 8u);
  EXPECT_THAT(small.cores[5].cpus, ElementsAre(10, 11));
  EXPECT_EQ(small.cores[5].numa, 1u);
  ASSERT_EQ(small.nics.size(), 2u);
  EXPECT_EQ(small.nics[1].infiniband, "mlx5_1");
  EXPECT_TRUE(small.nics[1].up);
  ASSERT_EQ(small.accelerators.size(), 4u);
  EXPECT_THAT(small.accelerators[2].nearest_nics, ElementsAre("mlx5_1"));
  machine.nics[1].ports[0].active = false;
  EXPECT_FALSE(planning_topology(machine).nics[1].up);
  machine.limits.allowed = topology::CpuSet::from_list("0-3");
  EXPECT_EQ(planning_topology(machine).cores.size(), 2u);
}

}  // namespace
}  // namespace troupe
