#include "actors/loader_actor.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"
#include "runtime/memory/arena.hpp"
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

/// A loader whose batches are recorded and, unless stated otherwise, returned at once.
struct World {
  World(Schedule schedule, Rank rank, std::size_t slots = 3, bool holds = false, const Source* other = nullptr)
      : World(schedule, rank, slots, holds, SampleLedger{schedule}, schedule.rows, other) {}
  /// `other` is used instead of numbered samples.
  World(const Schedule& schedule, Rank rank, std::size_t slots, bool holds, const SampleLedger& ledger,
        std::uint32_t room, const Source* other = nullptr)
      : hold(holds), train(schedule.train_samples), test(schedule.test_samples), batch(room, test::numbered_fields()) {
    space.map(arena);
    pool = std::make_unique<LeasePool>(space, *arena, slots, batch.size_bytes());
    device = actors.listener<BatchReceiver, BatchLease>([this](const BatchLease& b) { take(b); });
    loader = spawn_loader(actors.system(),
                          {*pool, other != nullptr ? *other : train, test, batch, schedule, rank, threads, 7, ledger},
                          device);
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
  IoThreads threads{"data", 0};
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

/// Fills nothing until the test asks for it.
class SlowNumbers final : public Source {
 public:
  struct Asked {
    FillRequest request;
    std::shared_ptr<FillDone> done;
  };
  std::uint64_t count_samples() const noexcept override { return 100; }
  const std::vector<Field>& fields() const noexcept override { return fields_; }
  std::uint64_t size_bytes() const noexcept override { return 0; }
  void fill(const FillRequest& request, IoThreads&, std::shared_ptr<FillDone> done) const override {
    asked.push_back({request, std::move(done)});
  }
  void fill_one(std::size_t which) {
    Numbers::write(asked.at(which).request);
    asked.at(which).done->filled({});
  }
  mutable std::vector<Asked> asked;

 private:
  std::vector<Field> fields_ = test::numbered_fields();
};

TEST(LoaderActor, AsksForAllFreeSlotsAtOnceAndSendsTheBatchesInTheirOrderWheneverTheyAreFilled) {
  SlowNumbers source;
  World w{{.train_samples = 100, .test_samples = 1, .rows = 2, .ranks = 1, .steps = 50, .evaluate_every = 0},
          {0},
          3,
          true,
          &source};
  ASSERT_EQ(source.asked.size(), 3U);
  for (const std::size_t which : {2, 1}) {
    source.fill_one(which);
    w.actors.run();
    EXPECT_EQ(w.received.size(), 0U);
  }
  source.fill_one(0);
  w.actors.run();
  ASSERT_EQ(w.received.size(), 3U);
  for (std::uint64_t k = 0; k < 3; ++k) {
    EXPECT_EQ(w.received[k].step, k);
    for (std::size_t row = 0; row < 2; ++row)
      EXPECT_EQ(w.received[k].rows[row], static_cast<float>(source.asked[k].request.samples[row].index));
  }
}

TEST(LoaderActor, AsksForSamplesByTheirPassAndTheJobsSeed) {
  SlowNumbers source;
  World w{{.train_samples = 100, .test_samples = 1, .rows = 60, .ranks = 1, .steps = 50, .evaluate_every = 0},
          {0},
          3,
          true,
          &source};
  ASSERT_EQ(source.asked.size(), 3U);
  for (std::size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(source.asked[k].request.seed, 7U);
    for (std::size_t row = 0; row < 60; ++row)
      EXPECT_EQ(source.asked[k].request.samples[row].epoch, (60 * k + row) / 100);
  }
}

TEST(LoaderActor, EndsWithWhatWentWrongInABatch) {
  SlowNumbers source;
  World w{{.train_samples = 100, .test_samples = 1, .rows = 2, .ranks = 1, .steps = 50, .evaluate_every = 0},
          {0},
          3,
          true,
          &source};
  Status ended;
  w.loader->attach_functor([&ended](const caf::error& why) { ended = from_caf(why); });
  source.asked.at(1).done->filled({Code::corrupt, "sample 7 is no picture"});
  w.actors.run();
  EXPECT_TRUE(ended.ok()) << "the batch before it is not there yet";
  source.fill_one(0);
  w.actors.run();
  EXPECT_EQ(ended.code(), Code::corrupt);
  EXPECT_EQ(ended.text(), "sample 7 is no picture");
  source.fill_one(2);  // who asked is gone
  w.actors.run();
  EXPECT_EQ(w.received.size(), 1U);
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
  SampleLedger ledger{schedule, {0, 4}, {2}};
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
  World w{schedule, {1}, 3, false, SampleLedger{schedule, {0, 2}, {5}}, 8};
  EXPECT_EQ(w.received.size(), 5u);
  w.actors.send(w.loader, LedgerUpdate{5, 8, {2, 6}});
  w.actors.run();
  EXPECT_EQ(w.received.size(), 8u);
  EXPECT_EQ(w.received.back().count, 6u);
  w.actors.send(w.loader, LedgerUpdate{5, 50, {2, 6}});
  w.actors.run();
  EXPECT_EQ(w.received.size(), 50u);
}

}  // namespace
}  // namespace troupe
