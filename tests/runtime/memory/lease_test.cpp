#include "runtime/memory/lease.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "runtime/base/error.hpp"
#include "tests/support/child_process.hpp"

namespace troupe::testing {
namespace {

class CountingWaker final : public SlotWaker {
 public:
  void slot_free() noexcept override { times.fetch_add(1); }
  std::atomic<int> times{0};
};

class LeasePoolTest : public ::testing::Test {
 protected:
  LeasePoolTest() { space_.map(arena_); }
  Timeline& line() { return space_.timeline(line_); }

  std::shared_ptr<Arena> arena_ = Arena::create(arena_id(Peer{0}, 1), 1 << 16);
  AddressSpace space_;
  TimelineId line_ = arena_->make_timeline();
  std::optional<LeasePool> pool_{std::in_place, space_, *arena_, 3, 1000};
};

TEST_F(LeasePoolTest, GivesEachSlotOnceUntilItIsEmpty) {
  std::vector<Slot> slots;
  for (int i = 0; i < 3; ++i) slots.push_back(pool_->try_take().value());
  EXPECT_EQ(pool_->try_take(), std::nullopt);
  EXPECT_EQ(pool_->count_free(), 0u);
  EXPECT_EQ(pool_->count_slots(), 3u);
  for (const Slot& slot : slots) {
    EXPECT_EQ(slot.memory().size_bytes, 1000u);
    EXPECT_EQ(slot.memory().offset % 64, 0u);
    EXPECT_EQ(slot.data(), space_.address(slot.memory()));
  }
  EXPECT_NE(slots[0].memory().offset, slots[1].memory().offset);
  EXPECT_NE(slots[1].memory().offset, slots[2].memory().offset);
}

TEST_F(LeasePoolTest, GetsAnUnfilledSlotBackAtOnce) {
  { const Slot slot = pool_->try_take().value(); }
  EXPECT_EQ(pool_->count_free(), 3u);
  Slot kept = pool_->try_take().value();
  kept = pool_->try_take().value();
  EXPECT_EQ(pool_->count_free(), 2u);
}

TEST_F(LeasePoolTest, GetsASlotBackWhenTheLastCopyOfItsLeaseEnds) {
  Slot slot = pool_->try_take().value();
  const Memory memory = slot.memory();
  Lease lease = std::move(slot).publish(Point{line_, 4});
  Lease copy = lease;
  EXPECT_EQ(lease.memory(), memory);
  EXPECT_EQ(copy.valid_from(), (Point{line_, 4}));
  lease = {};
  EXPECT_FALSE(lease);
  EXPECT_EQ(pool_->count_free(), 2u);
  copy = {};
  EXPECT_EQ(pool_->count_free(), 3u);
}

TEST_F(LeasePoolTest, WaitsForEveryPointAfterTheLeaseEnded) {
  const TimelineId other = space_.make_private_timeline();
  Lease lease = pool_->try_take().value().publish();
  lease.free_after({line_, 2});
  lease.free_after({other, 1});
  lease = {};
  line().signal(1);
  EXPECT_EQ(pool_->count_free(), 2u);
  line().signal(2);
  EXPECT_EQ(pool_->count_free(), 2u);
  space_.timeline(other).signal(1);
  EXPECT_EQ(pool_->count_free(), 3u);
}

TEST_F(LeasePoolTest, WaitsForTheLeaseAfterEveryPointIsReached) {
  Lease lease = pool_->try_take().value().publish();
  lease.free_after({line_, 2});
  line().signal(2);
  lease.free_after({line_, 1});
  EXPECT_EQ(pool_->count_free(), 2u);
  lease = {};
  EXPECT_EQ(pool_->count_free(), 3u);
}

TEST_F(LeasePoolTest, TakesPoisonForTheEndOfReading) {
  Lease lease = pool_->try_take().value().publish();
  lease.free_after({line_, 2});
  lease = {};
  line().poison({Code::peer_lost, "the reader died"});
  EXPECT_EQ(pool_->count_free(), 3u);
}

TEST_F(LeasePoolTest, RefusesAPointOfALineThatIsUnknown) {
  Lease lease = pool_->try_take().value().publish();
  EXPECT_THROW(lease.free_after({TimelineId{ArenaId{77}, 40}, 1}), Error);
  lease = {};
  EXPECT_EQ(pool_->count_free(), 3u);
}

TEST_F(LeasePoolTest, TellsItsWakerOfEverySlotUntilItIsTakenAway) {
  CountingWaker waker;
  pool_->on_free(&waker);
  { const Slot slot = pool_->try_take().value(); }
  { const Lease lease = pool_->try_take().value().publish(); }
  EXPECT_EQ(waker.times, 2);
  pool_->on_free(nullptr);
  { const Slot slot = pool_->try_take().value(); }
  EXPECT_EQ(waker.times, 2);
}

TEST_F(LeasePoolTest, MayEndBeforeItsLeases) {
  CountingWaker waker;
  pool_->on_free(&waker);
  Lease lease = pool_->try_take().value().publish();
  std::optional<Slot> slot = pool_->try_take();
  lease.free_after({line_, 1});
  pool_.reset();
  EXPECT_EQ(lease.memory().size_bytes, 1000u);
  slot.reset();
  lease = {};
  line().signal(1);
  EXPECT_EQ(waker.times, 0);
}

TEST_F(LeasePoolTest, CountsCopiesOfManyThreads) {
  constexpr int kRounds = 300;
  std::uint64_t step = 0;
  for (int round = 0; round < kRounds; ++round) {
    Lease lease = pool_->try_take().value().publish();
    ++step;
    std::vector<std::thread> readers;
    for (int i = 0; i < 4; ++i) {
      readers.emplace_back([copy = lease, point = Point{line_, step}]() mutable {
        Lease another = copy;
        another.free_after(point);
        copy = {};
      });
    }
    lease = {};
    line().signal(step);
    for (std::thread& reader : readers) reader.join();
    ASSERT_EQ(pool_->count_free(), 3u) << "round " << round;
  }
}

TEST_F(LeasePoolTest, GetsSlotsBackFromAnotherProcess) {
  AddressSpace theirs;  // a peer's: its own objects over the same words
  theirs.map(Arena::open(arena_->ticket()));
  CountingWaker waker;
  pool_->on_free(&waker);
  for (std::uint64_t step = 1; step <= 50; ++step) {
    Lease lease = pool_->try_take().value().publish();
    lease.free_after({line_, step});
    lease = {};
    theirs.timeline(line_).signal(step);
    ASSERT_TRUE(eventually([&] { return pool_->count_free() == 3; })) << "step " << step;
  }
  EXPECT_TRUE(eventually([&] { return waker.times == 50; }));
}

}  // namespace
}  // namespace troupe::testing
