#include "actors/node_loader_actor.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include <caf/typed_event_based_actor.hpp>

#include "actors/slot_lender_actor.hpp"
#include "runtime/memory/arena.hpp"
#include "tests/actors/numbered_source.hpp"
#include "tests/support/actor_world.hpp"

namespace troupe {
namespace {

using test::Numbers;
using test::numbers_in;

struct Received {
  std::uint64_t step = 0;
  bool evaluation = false;
  bool last = false;
  std::vector<float> numbers;
  friend bool operator==(const Received&, const Received&) = default;
};

/// One rank of the node: its arena, pool and lender, and a device that records batches and keeps those that the test
/// names.
struct Device {
  std::shared_ptr<Arena> arena;
  std::unique_ptr<LeasePool> pool;
  std::vector<Received> received;
  std::deque<Lease> held;
  bool holds = false;
  BatchReceiver actor;
  SlotLenderActor lender;
};

/// A node whose ranks have one loader.
struct Node {
  explicit Node(const Schedule& schedule) : Node(schedule, SampleLedger{schedule}, schedule.rows) {}
  Node(const Schedule& schedule, const SampleLedger& ledger, std::uint32_t room)
      : train(schedule.train_samples), test(schedule.test_samples), batch(room, test::numbered_fields()) {
    NodeLoaderParts parts{space, train, test, batch, schedule, {}, threads, 7, ledger};
    for (std::uint32_t rank = 0; rank < schedule.ranks; ++rank) {
      parts.ranks.push_back({rank});
      Device& device = devices.emplace_back();
      device.arena = Arena::create(arena_id({rank}, 1), 1 << 16);
      space.map(device.arena);
      device.pool = std::make_unique<LeasePool>(space, *device.arena, 3, batch.size_bytes());
      device.actor = actors.listener<BatchReceiver, BatchLease>([this, &device](const BatchLease& b) {
        device.received.push_back({b.step.value, b.evaluation, b.last, numbers_in(space, batch, b)});
        if (device.holds) device.held.push_back(b.lease);
      });
    }
    loader = spawn_node_loader(actors.system(), parts);
  }
  ~Node() {
    end(loader);
    for (Device& device : devices) {
      device.held.clear();
      end(device.actor);
      end(device.lender);
    }
    actors.run();
  }
  template <class Actor>
  void end(const Actor& actor) {
    if (actor) caf::anon_send_exit(actor, caf::exit_reason::kill);
  }
  void run() {
    for (std::uint32_t rank = 0; rank < devices.size(); ++rank) {
      Device& device = devices[rank];
      device.lender = spawn_slot_lender(actors.system(), *device.pool, {rank}, loader, device.actor);
    }
    actors.run();
  }

  AddressSpace space;
  IoThreads threads{"data", 0};
  Numbers train;
  Numbers test;
  BatchLayout batch;
  std::deque<Device> devices;
  test::ActorWorld actors;
  NodeLoaderActor loader;
};

/// The batches that a loader for this rank alone sends.
std::vector<Received> alone(const Schedule& schedule, Rank rank, const SampleLedger& ledger, std::uint32_t room) {
  Numbers train{schedule.train_samples};
  Numbers tests{schedule.test_samples};
  const BatchLayout batch{room, test::numbered_fields()};
  AddressSpace space;
  const auto arena = Arena::create(arena_id({9}, 1), 1 << 16);
  space.map(arena);
  LeasePool pool{space, *arena, 3, batch.size_bytes()};
  test::ActorWorld actors;
  std::vector<Received> received;
  const auto device = actors.listener<BatchReceiver, BatchLease>([&](const BatchLease& b) {
    received.push_back({b.step.value, b.evaluation, b.last, numbers_in(space, batch, b)});
  });
  IoThreads none("data", 0);
  const auto loader =
      spawn_loader(actors.system(), {pool, train, tests, batch, schedule, rank, none, 7, ledger}, device);
  actors.run();
  caf::anon_send_exit(loader, caf::exit_reason::kill);
  caf::anon_send_exit(device, caf::exit_reason::kill);
  actors.run();
  return received;
}

TEST(NodeLoaderActor, GivesEveryRankWhatALoaderOfItsOwnWould) {
  for (const Scatter scatter : {Scatter::endless, Scatter::exact, Scatter::equal}) {
    const Schedule schedule{
        .train_samples = 50, .test_samples = 11, .rows = 4, .ranks = 3, .steps = 13, .later = {}, .scatter = scatter};
    Node node{schedule};
    node.run();
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(node.devices[rank].received, alone(schedule, {rank}, SampleLedger{schedule}, 4)) << rank;
      EXPECT_GT(node.devices[rank].received.size(), 13u);
    }
  }
}

TEST(NodeLoaderActor, LetsNoRankWaitForOneThatGivesNoSlotBack) {
  Node node{{.train_samples = 100, .test_samples = 1, .rows = 2, .ranks = 3, .steps = 40, .evaluate_every = 0}};
  node.devices[1].holds = true;
  node.run();
  EXPECT_EQ(node.devices[0].received.size(), 40u);
  EXPECT_EQ(node.devices[1].received.size(), 3u);
  EXPECT_EQ(node.devices[2].received.size(), 40u);
  node.devices[1].held.pop_front();
  node.actors.run();
  EXPECT_EQ(node.devices[1].received.size(), 4u);
}

TEST(NodeLoaderActor, LoadsNothingBeyondTheHorizonAndGoesOnWhenItMoves) {
  const Schedule schedule{
      .train_samples = 100, .test_samples = 1, .rows = 4, .ranks = 2, .steps = 50, .evaluate_every = 0};
  const SampleLedger ledger{schedule, {0, 2}, {5}};
  Node node{schedule, ledger, 8};
  node.run();
  for (const Device& device : node.devices) EXPECT_EQ(device.received.size(), 5u);
  node.actors.send(node.loader, LedgerUpdate{5, 50, {2, 6}});
  node.actors.run();
  for (const Device& device : node.devices) ASSERT_EQ(device.received.size(), 50u);
  EXPECT_EQ(node.devices[0].received.back().numbers.size(), 2u);
  EXPECT_EQ(node.devices[1].received.back().numbers.size(), 6u);
}

TEST(NodeLoaderActor, EndsWhenASlotIsLentThatIsTooSmall) {
  Node node{{.train_samples = 100, .test_samples = 1, .rows = 2, .ranks = 1, .steps = 4, .evaluate_every = 0}};
  bool ended = false;
  node.loader->attach_functor([&ended] { ended = true; });
  node.actors.send(node.loader, SlotLent{0, node.devices[0].arena->id().value, 4096, 4});
  node.actors.run();
  EXPECT_TRUE(ended);
}

TEST(SlotLenderActor, EndsWithItsDeviceAndTakesItsSlotsBack) {
  Node node{{.train_samples = 100, .test_samples = 1, .rows = 2, .ranks = 2, .steps = 0, .evaluate_every = 0}};
  node.run();
  EXPECT_EQ(node.devices[0].pool->count_free(), 0u);
  bool ended = false;
  node.devices[0].lender->attach_functor([&ended] { ended = true; });
  node.end(node.devices[0].actor);
  node.actors.run();
  EXPECT_TRUE(ended);
  EXPECT_EQ(node.devices[0].pool->count_free(), 3u);
}

TEST(SlotLenderActor, EndsWhenASlotIsFilledThatItDidNotLend) {
  Node node{{.train_samples = 100, .test_samples = 1, .rows = 2, .ranks = 1, .steps = 0, .evaluate_every = 0}};
  node.run();
  bool ended = false;
  node.devices[0].lender->attach_functor([&ended] { ended = true; });
  node.actors.send(node.devices[0].lender, SlotFilled{7, 0, false, false, 1});
  node.actors.run();
  EXPECT_TRUE(ended);
  EXPECT_TRUE(node.devices[0].received.empty());
}

}  // namespace
}  // namespace troupe
