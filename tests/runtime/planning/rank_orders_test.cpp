#include "runtime/planning/rank_orders.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "runtime/planning/machine_topology.hpp"
#include "tests/runtime/planning/placed_nodes.hpp"
#include "tests/runtime/topology/machines.hpp"

namespace troupe {
namespace {

using ::testing::HasSubstr;
using namespace troupe::testing;

struct Placed {
  topology::Machine machine = topology::testing::two_sockets();
  std::vector<Topology> topologies;
  Plan plan;
  RankOrders orders;
};

Placed placed(std::uint32_t nodes, std::uint32_t ranks_of_node) {
  Placed made;
  for (std::uint32_t n = 0; n < nodes; ++n) {
    made.topologies.push_back(planning_topology(made.machine));
    made.topologies.back().identity.boot_id = text("machine ", n);
  }
  made.plan = make_plan(with_policy("spread"), small_mlp(),
                        inputs_on(made.topologies, std::vector<std::uint32_t>(nodes, ranks_of_node)));
  const std::vector<const topology::Machine*> machines(nodes, &made.machine);
  std::vector<const Topology*> topologies;
  for (const Topology& topology : made.topologies) topologies.push_back(&topology);
  made.orders = rank_orders(made.plan, machines, topologies);
  return made;
}

TEST(RankOrders, TheSlowestEdgeOfANodeIsBetweenItsProcessors) {
  const Placed made = placed(1, 4);
  const auto numa = [&](Rank rank) { return made.plan.ranks[rank.value].numa_nodes; };
  EXPECT_NE(numa(made.orders.ring.from), numa(made.orders.ring.to));
  EXPECT_DOUBLE_EQ(made.orders.ring.slowest, 10e9);
  EXPECT_THAT(describe(made.orders), HasSubstr("slowest edge"));
  std::size_t crossings = 0;
  for (std::size_t i = 0; i < 4; ++i)
    crossings += numa(made.orders.ring.order[i]) != numa(made.orders.ring.order[(i + 1) % 4]);
  EXPECT_EQ(crossings, 2u) << "a ring crosses once there and once back";
}

TEST(RankOrders, BetweenNodesTheSlowerDeviceCounts) {
  Placed made = placed(2, 1);
  EXPECT_DOUBLE_EQ(made.orders.ring.slowest, 25e9);
  made.topologies[1].nics[0].bits_per_second /= 2;
  const std::vector<const topology::Machine*> machines(2, &made.machine);
  const RankOrders orders =
      rank_orders(made.plan, machines, std::vector<const Topology*>{&made.topologies[0], &made.topologies[1]});
  EXPECT_DOUBLE_EQ(orders.tree.slowest, 12.5e9);
  EXPECT_THAT(orders.tree.limit, HasSubstr("of node 1"));
}

TEST(RankOrders, ManyRanksKeepTheirOrderAndTheirTreeJoinsNodes) {
  const Placed made = placed(5, 4);
  for (std::uint32_t r = 0; r < 20; ++r) EXPECT_EQ(made.orders.ring.order[r].value, r);
  EXPECT_EQ(made.orders.tree.order[4].value, 0u);
  EXPECT_EQ(made.orders.tree.order[7].value, 4u);
  EXPECT_GT(made.orders.ring.slowest, 0);
}

TEST(RankOrders, OneRankHasNone) { EXPECT_EQ(describe(placed(1, 1).orders), ""); }

}  // namespace
}  // namespace troupe
