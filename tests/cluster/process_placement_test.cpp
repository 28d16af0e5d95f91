// Which network device a rank uses, and which facts about its placement are found.

#include "apps/session/process_placement.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "apps/session/placement_check.hpp"
#include "devices/discovery/discovery.hpp"
#include "runtime/base/thread.hpp"

namespace troupe {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Topology node_with(std::vector<Nic> nics) {
  Topology node;
  node.identity = {"boot", 1};
  node.host = "a";
  node.numa = {{.os_index = 0}, {.os_index = 1}};
  node.nics = std::move(nics);
  return node;
}

Topology two_networks() {
  return node_with({{.name = "lo", .up = true, .loopback = true},
                    {.name = "eth0", .up = true},
                    {.name = "ens1f0", .up = true, .infiniband = "mlx5_0"}});
}

/// One rank on each of `nodes`.
Plan plan_of(std::uint32_t nodes, const std::string& device, std::vector<std::uint32_t> cpus = {0}) {
  Plan plan;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    plan.nodes.push_back({{"boot", node + 1}, node == 0 ? "a" : "b", node});
    RankPlan& rank = plan.ranks.emplace_back();
    rank.rank = {node};
    rank.node = node;
    rank.device = "cpu";
    rank.cpus = cpus;
    rank.network_device = device;
  }
  return plan;
}

std::string devices(const Plan& plan, const std::string& transport = "auto", const char* users = nullptr) {
  Settings settings;
  settings.cluster.transport = transport;
  return network_choice(plan, {0}, two_networks(), settings, users).devices;
}

TEST(NetworkChoice, TakesLoopbackWhereAllRanksAreOnOneNode) { EXPECT_EQ(devices(plan_of(1, "eth0")), "lo"); }

TEST(NetworkChoice, TakesThePlansBetweenNodes) {
  EXPECT_EQ(devices(plan_of(2, "eth0")), "eth0");
  EXPECT_EQ(devices(plan_of(2, "")), "") << "the plan has none";
  EXPECT_EQ(devices(plan_of(2, "eth7")), "eth7") << "UCX says that it is not there";
}

TEST(NetworkChoice, NamesAnRdmaDeviceAsUcxDoes) {
  for (const char* name : {"ens1f0", "mlx5_0:1"}) {
    EXPECT_EQ(devices(plan_of(2, name)), "mlx5_0:1,ens1f0") << name;
    EXPECT_EQ(devices(plan_of(2, name), "tcp"), "ens1f0") << name;
  }
}

TEST(NetworkChoice, LeavesItToTheUserWhoNamesDevices) {
  Settings settings;
  const NetworkChoice choice = network_choice(plan_of(2, "eth0"), {0}, two_networks(), settings, "ens1f0");
  EXPECT_EQ(choice.devices, "") << "UCX reads the environment by itself";
  EXPECT_EQ(choice.users, "ens1f0");
  EXPECT_EQ(devices(plan_of(1, ""), "auto", "eth0"), "");
}

TEST(NetworkChoice, LeavesItToUcxWhereNothingIsKeptInItsPlace) {
  Settings settings;
  settings.placement.affinity = "none";
  EXPECT_EQ(network_choice(plan_of(2, "eth0"), {0}, two_networks(), settings, nullptr).devices, "");
  EXPECT_EQ(network_choice(plan_of(1, ""), {0}, two_networks(), settings, nullptr).devices, "lo") << "as ever";
}

/// A rank that has joined a job of `plan`, on a node with two networks.
class Joined {
 public:
  explicit Joined(const Plan& plan, Settings settings = {})
      : settings_(std::move(settings)), place_(plan, {0}, two_networks(), settings_), check_(place_, false) {
    std::vector<Hello> hellos(plan.world_size());
    for (std::uint32_t rank = 0; rank < plan.world_size(); ++rank) {
      hellos[rank].pid = static_cast<std::int32_t>(rank);
      hellos[rank].topology = two_networks();
    }
    check_.joined(plan, {0}, hellos, settings_);
  }
  PlacementCheck& check() { return check_; }
  const ProcessPlacement& place() const { return place_; }

 private:
  Settings settings_;
  ProcessPlacement place_;
  PlacementCheck check_;
};

TEST(PlacementCheck, TellsOnceOfANetworkDeviceThatIsNotThePlans) {
  Joined rank(plan_of(2, "eth0"));
  rank.check().opened({"ens1f0"});
  EXPECT_THAT(rank.check().new_differences(nullptr),
              ElementsAre(HasSubstr("uses ens1f0; the plan has eth0 (network-off-plan)")));
  EXPECT_THAT(rank.check().new_differences(nullptr), IsEmpty());
  EXPECT_THAT(rank.check().describe(nullptr), HasSubstr("network-off-plan"));
}

TEST(PlacementCheck, FindsNothingWhereTheTransportHasThePlansDevice) {
  Joined rank(plan_of(2, "eth0"));
  EXPECT_THAT(rank.check().new_differences(nullptr), IsEmpty()) << "no transport";
  rank.check().opened({"eth0"});
  EXPECT_THAT(rank.check().new_differences(nullptr), IsEmpty());
}

TEST(PlacementCheck, LooksAtTheSessionsThreadsAlone) {
  const std::vector<std::uint32_t> usable = usable_cpus();
  if (usable.size() < 2) GTEST_SKIP() << "this process may use one CPU alone";
  std::atomic<bool> end{false};
  const auto body = [&] { end.wait(false); };
  std::thread apps = start_thread("apps", body);
  Joined rank(plan_of(1, "", {usable.back()}));
  std::thread sessions = [&] {
    const ScopedPlacement in_place(rank.place());
    return start_thread("sessions", body);
  }();
  EXPECT_THAT(rank.check().new_differences(nullptr), IsEmpty());
  const auto look = rank.check().look(nullptr);
  ASSERT_THAT(look.ranks.front().placement->threads, ::testing::SizeIs(1));
  EXPECT_EQ(look.ranks.front().placement->threads.front().cpus.list(), std::to_string(usable.back()));
  std::thread later = start_thread("later", body);  // nobody knows whose
  EXPECT_THAT(rank.check().new_differences(nullptr), IsEmpty());

  keep_on(sessions, usable, "the test's thread");
  EXPECT_THAT(rank.check().new_differences(nullptr), ElementsAre(HasSubstr("(threads-off-plan)")));
  end = true;
  end.notify_all();
  for (std::thread* thread : {&apps, &sessions, &later}) thread->join();
}

TEST(PlacementCheck, SaysThatMemoryIsNotWhereThePlanWantsIt) {
  Plan plan = plan_of(1, "");
  plan.ranks[0].numa_nodes = {700};
  Joined rank(plan);
  const auto arena = Arena::create({1}, 1 << 20, rank.place().memory());
  EXPECT_THAT(rank.check().new_differences(arena.get()),
              Contains(HasSubstr("memory is not bound to NUMA node 700: this process may use no NUMA node 700")));
}

TEST(PlacementCheck, TellsOnWhichNodeTheArenaIs) {
  Plan plan = plan_of(1, "");
  const std::uint32_t node = discover().numa.front().os_index;
  plan.ranks[0].numa_nodes = {node};
  Joined rank(plan);
  const auto arena = Arena::create({1}, 1 << 20, rank.place().memory());
  if (!rank.place().memory()->refusal().empty()) GTEST_SKIP() << rank.place().memory()->refusal();
  EXPECT_THAT(rank.check().new_differences(arena.get()), IsEmpty());
  EXPECT_THAT(rank.check().describe(arena.get()),
              HasSubstr(text("64 of 64 sampled pages of shared memory on NUMA node ", node)));
}

TEST(ProcessPlacement, KeepsNothingInItsPlaceWhereTheSettingsSaySo) {
  Settings settings;
  settings.placement.affinity = "none";
  Plan plan = plan_of(1, "");
  plan.ranks[0].numa_nodes = {0};
  const Joined rank(plan, settings);
  EXPECT_THAT(rank.place().rank().cpus, IsEmpty());
  EXPECT_EQ(rank.place().memory(), nullptr);
}

TEST(ProcessPlacement, BindsNoMemoryWhereThereIsOneNumaNode) {
  Plan plan = plan_of(1, "");
  plan.ranks[0].numa_nodes = {0};
  Topology node = two_networks();
  EXPECT_NE(ProcessPlacement(plan, {0}, node, {}).memory(), nullptr);
  node.numa.pop_back();
  EXPECT_EQ(ProcessPlacement(plan, {0}, node, {}).memory(), nullptr);
}

TEST(ProcessPlacement, BindsNoMemoryWhereThreadsAloneAreKept) {
  Settings settings;
  settings.placement.affinity = "threads";
  Plan plan = plan_of(1, "", {usable_cpus().front()});
  plan.ranks[0].numa_nodes = {0};
  const Joined rank(plan, settings);
  EXPECT_THAT(rank.place().rank().cpus, ElementsAre(usable_cpus().front()));
  EXPECT_EQ(rank.place().memory(), nullptr);
}

}  // namespace
}  // namespace troupe
