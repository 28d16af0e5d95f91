#include "actors/loader_actor.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include <caf/typed_event_based_actor.hpp>

#include "runtime/arena.hpp"
#include "tests/actors/numbered_source.hpp"
#include "tests/support/actor_world.hpp"

namespace troupe {
namespace {

using test::Numbers;
using test::numbers_in;

struct Received {
  std::uint64_t step;
  bool evaluation;
  bool last;
  std::vector<float> rows;  // those that count
  std::uint32_t count = 0;  // as the message says
};

/// A loader whose batches are noted and, unless told otherwise, given back at once.
struct World {
  World(Schedule schedule, Rank rank, std::size_t slots = 3, bool holds = false)
      : World(schedule, rank, slots, holds, Ledger{schedule}, schedule.rows) {}
  World(const Schedule& schedule, Rank rank, std::size_t slots, bool holds, const Ledger& ledger, std::uint32_t room)
      : hold(holds), train(schedule.train_samples), test(schedule.test_samples), batch{.rows = room, .features = 1} {
    space.map(arena);
    pool = std::make_unique<LeasePool>(space, *arena, slots, batch.size_bytes());
    device = actors.listener<BatchReceiver, BatchLease>([this](const BatchLease& b) { take(b); });
    loader = spawn_loader(actors.system(), {*pool, train, test, batch, schedule, rank, 7, ledger}, device);
    actors.run();
  }
  ~World() {
    caf::anon_send_exit(loader, caf::exit_reason::kill);
    caf::anon_send_exit(device, caf::exit_reason::kill);
    actors.run();
  }
  void take(const BatchLease& b) {
    Received r{b.step.value, b.evaluation, b.last, numbers_in(space, batch, b), b.rows};
    received.push_back(std::move(r));
    if (hold) held.push_back(b.lease);
  }

  bool hold;
  Numbers train;
  Numbers test;
  BatchLayout batch;
  std::shared_ptr<Arena> arena = Arena::create(arena_id({0}, 1), 1 << 20);
  AddressSpace space;
  std::unique_ptr<LeasePool> pool;
  std::vector<Lease> held;
  std::vector<Received> received;
  test::ActorWorld actors;
  BatchReceiver device;
  LoaderActor loader;
};

TEST(LoaderActor, SendsEveryStepsBatchInOrder) {
  World w{{.train_samples = 12, .test_samples = 1, .rows = 2, .ranks = 1, .steps = 9, .evaluate_every = 0}, {0}};
  ASSERT_EQ(w.received.size(), 9u);
  for (std::uint64_t k = 0; k < 9; ++k) EXPECT_EQ(w.received[k].step, k);
}

TEST(LoaderActor, SeesEverySampleOnceAnEpochOverAllRanks) {
  std::vector<int> seen(12, 0);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    World w{{.train_samples = 12, .test_samples = 1, .rows = 2, .ranks = 3, .steps = 2, .evaluate_every = 0}, {rank}};
    for (const Received& r : w.received)
      for (const float number : r.rows) ++seen[static_cast<std::size_t>(number)];
  }
  EXPECT_EQ(seen, std::vector<int>(12, 1));
}

TEST(LoaderActor, TakesTheSameSamplesOfAStepAtAnyWorldSize) {
  const auto samples_of_step_1 = [](std::uint32_t ranks) {
    std::vector<float> all;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      World w{
          {.train_samples = 40, .test_samples = 1, .rows = 8 / ranks, .ranks = ranks, .steps = 2, .evaluate_every = 0},
          {rank}};
      all.insert(all.end(), w.received[1].rows.begin(), w.received[1].rows.end());
    }
    return all;
  };
  EXPECT_EQ(samples_of_step_1(1), samples_of_step_1(2));
  EXPECT_EQ(samples_of_step_1(1), samples_of_step_1(4));
}

TEST(LoaderActor, SendsNothingWithoutAFreeSlotAndGoesOnWhenOneComesBack) {
  World w{
      {.train_samples = 100, .test_samples = 1, .rows = 2, .ranks = 1, .steps = 50, .evaluate_every = 0}, {0}, 3, true};
  EXPECT_EQ(w.received.size(), 3u);
  w.held.erase(w.held.begin());
  w.actors.run();
  EXPECT_EQ(w.received.size(), 4u);
}

TEST(LoaderActor, EndsWithItsDeviceInsteadOfFillingSlotsForNobody) {
  World w{{.train_samples = 100, .test_samples = 1, .rows = 2, .ranks = 1, .steps = 1000000, .evaluate_every = 0},
          {0},
          3,
          true};
  bool ended = false;
  w.loader->attach_functor([&ended] { ended = true; });
  caf::anon_send_exit(w.device, caf::exit_reason::kill);
  w.held.clear();
  w.actors.run();
  EXPECT_TRUE(ended);
}

TEST(LoaderActor, GoesThroughTheRanksPartOfTheTestSetAfterAnEpochWithAShortLastBatch) {
  World w{{.train_samples = 4, .test_samples = 10, .rows = 2, .ranks = 2, .steps = 2}, {1}};
  std::vector<float> tested;
  std::vector<bool> last;
  for (const Received& r : w.received) {
    if (!r.evaluation || r.step != 0) continue;
    tested.insert(tested.end(), r.rows.begin(), r.rows.end());
    last.push_back(r.last);
  }
  EXPECT_EQ(tested, (std::vector<float>{5, 6, 7, 8, 9}));
  EXPECT_EQ(last, (std::vector<bool>{false, false, true}));
}

TEST(LoaderActor, SendsAnEmptyTestBatchToARankWithoutPart) {
  World w{{.train_samples = 2, .test_samples = 1, .rows = 1, .ranks = 2, .steps = 1}, {0}};
  ASSERT_EQ(w.received.size(), 2u);
  EXPECT_TRUE(w.received[1].evaluation);
  EXPECT_TRUE(w.received[1].last);
  EXPECT_TRUE(w.received[1].rows.empty());
}

TEST(LoaderActor, TakesItsPartOfAStepByTheLedgerAndSaysHowManyRowsThatAre) {
  const Schedule schedule{
      .train_samples = 100, .test_samples = 1, .rows = 4, .ranks = 2, .steps = 6, .evaluate_every = 0};
  Ledger ledger{schedule, {0, 4}, {2}};
  ledger.append({{2}, {8, 0}}, {4});
  ledger.append({{4}, {1, 7}}, {6});
  std::vector<std::vector<float>> of_steps(6);
  std::vector<std::uint32_t> rows;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    World w{schedule, {rank}, 3, false, ledger, 8};
    ASSERT_EQ(w.received.size(), 6u);
    for (const Received& r : w.received) {
      of_steps[r.step].insert(of_steps[r.step].end(), r.rows.begin(), r.rows.end());
      rows.push_back(r.count);
    }
  }
  EXPECT_EQ(rows, (std::vector<std::uint32_t>{4, 4, 8, 8, 1, 1, 4, 4, 0, 0, 7, 7}));
  World alone{{.train_samples = 100, .test_samples = 1, .rows = 8, .ranks = 1, .steps = 6, .evaluate_every = 0}, {0}};
  for (std::size_t step = 0; step < 6; ++step) EXPECT_EQ(of_steps[step], alone.received[step].rows) << step;
}

TEST(LoaderActor, LoadsNothingBeyondTheHorizonAndGoesOnWhenItMoves) {
  const Schedule schedule{
      .train_samples = 100, .test_samples = 1, .rows = 4, .ranks = 2, .steps = 50, .evaluate_every = 0};
  World w{schedule, {1}, 3, false, Ledger{schedule, {0, 2}, {5}}, 8};
  EXPECT_EQ(w.received.size(), 5u);
  w.actors.send(w.loader, LedgerNews{5, 8, {2, 6}});
  w.actors.run();
  EXPECT_EQ(w.received.size(), 8u);
  EXPECT_EQ(w.received.back().count, 6u);
  w.actors.send(w.loader, LedgerNews{5, 50, {2, 6}});
  w.actors.run();
  EXPECT_EQ(w.received.size(), 50u);
}

}  // namespace
}  // namespace troupe
