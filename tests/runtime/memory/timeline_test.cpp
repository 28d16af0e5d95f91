#include <gmock/gmock.h>

#include <array>

#include "runtime/memory/arena.hpp"
#include "runtime/memory/futex_timeline.hpp"
#include "runtime/memory/line_watcher.hpp"
#include "tests/contracts/timeline_contract.hpp"
#include "tests/support/child_process.hpp"

namespace troupe::testing {
namespace {

using namespace std::chrono_literals;

/// A line that one process made for itself.
class PrivateLine final : public TimelineHome {
 public:
  Timeline& line() override { return space_.timeline(id_); }

 private:
  AddressSpace space_;
  TimelineId id_ = space_.make_private_timeline();
};

/// A line in an arena; the peer has mapped the arena once more and signals through its own object.
class SharedLine final : public TimelineHome {
 public:
  explicit SharedLine(bool spin) {
    mine_.map(arena_);
    theirs_.map(Arena::open(arena_->ticket()));
    mine_.may_spin(spin);
  }
  Timeline& line() override { return mine_.timeline(id_); }
  Timeline& peer() override { return theirs_.timeline(id_); }

 private:
  std::shared_ptr<Arena> arena_ = Arena::create(arena_id(Peer{0}, 1), 4096);
  TimelineId id_ = arena_->make_timeline();
  AddressSpace mine_;
  AddressSpace theirs_;
};

/// The same as on a kernel that cannot wait for several words.
class PolledLine final : public TimelineHome {
 public:
  Timeline& line() override { return line_; }
  Timeline& peer() override { return peer_; }

 private:
  std::atomic<std::chrono::nanoseconds> spin_{0ns};
  TimelineWord word_{};
  FutexTimeline line_{{ArenaId{1}, 32}, word_, &watchers_, spin_};
  FutexTimeline peer_{{ArenaId{1}, 32}, word_, nullptr, spin_};
  LineWatchers watchers_{/*has_waitv=*/false};
};

INSTANTIATE_TEST_SUITE_P(Futex, TimelineContract,
                         ::testing::Values(TimelineCase{"Private", [] { return std::make_unique<PrivateLine>(); }},
                                           TimelineCase{"Shared", [] { return std::make_unique<SharedLine>(false); }},
                                           TimelineCase{"SharedSpinning",
                                                        [] { return std::make_unique<SharedLine>(true); }},
                                           TimelineCase{"Polled", [] { return std::make_unique<PolledLine>(); }}),
                         TimelineCase::name_of);

/// An arena with lines, made before a fork; both sides map what they inherited.
class TwoProcesses : public ::testing::Test {
 protected:
  std::shared_ptr<Arena> arena_ = Arena::create(arena_id(Peer{0}, 1), 1 << 16);
  TimelineId ping_ = arena_->make_timeline();
  TimelineId pong_ = arena_->make_timeline();
  Blocking blocking_ = Blocking::on_thread("test");

  TimelineWord& word(TimelineId id) { return *reinterpret_cast<TimelineWord*>(arena_->base() + id.index * 128ull); }
  bool sleeps(TimelineId id) {
    return eventually([&] { return word(id).sleepers.load() != 0; });
  }
};

TEST_F(TwoProcesses, HandATurnToAndFro) {
  constexpr std::uint64_t kTurns = 2000;
  ChildProcess child{[&] {
    AddressSpace space;
    space.map(arena_);
    for (std::uint64_t i = 1; i <= kTurns; ++i) {
      if (!space.timeline(ping_).wait(blocking_, i, Deadline::after(10s), "a ping").ok()) return 1;
      space.timeline(pong_).signal(i);
    }
    return 0;
  }};
  AddressSpace space;
  space.map(arena_);
  for (std::uint64_t i = 1; i <= kTurns; ++i) {
    space.timeline(ping_).signal(i);
    const Status status = space.timeline(pong_).wait(blocking_, i, Deadline::after(10s), "a pong");
    ASSERT_TRUE(status.ok()) << status.text();
  }
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(TwoProcesses, TellAWakerOfTheOthersSignalsTimeAndAgain) {
  ChildProcess child{[&] {
    AddressSpace space;
    space.map(arena_);
    for (std::uint64_t i = 1; i <= 100; ++i) {
      if (!space.timeline(ping_).wait(blocking_, i, Deadline::after(10s), "a ping").ok()) return 1;
      space.timeline(pong_).signal(i);
    }
    return 0;
  }};
  AddressSpace space;
  space.map(arena_);
  for (std::uint64_t i = 1; i <= 100; ++i) {
    NotedWaker waker;
    space.timeline(pong_).wake(i, waker);
    space.timeline(ping_).signal(i);
    ASSERT_TRUE(eventually([&] { return waker.times() == 1; })) << "turn " << i;
    EXPECT_TRUE(waker.status().ok());
  }
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(TwoProcesses, CarryPoisonWithCodeAndTextCutToFit) {
  const std::string reason = "rank 1 on node two ended: " + std::string(200, 'x');
  ChildProcess child{[&] {
    AddressSpace space;
    space.map(arena_);
    space.timeline(ping_).poison({Code::device_fault, reason});
    return 0;
  }};
  AddressSpace space;
  space.map(arena_);
  const Status status = space.timeline(ping_).wait(blocking_, 1, Deadline::after(10s), "the child");
  EXPECT_EQ(status.code(), Code::device_fault);
  EXPECT_EQ(status.text(), reason.substr(0, 100) + "...");
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(TwoProcesses, GoOnWhenOneIsKilledInItsSleep) {
  ChildProcess child{[&] {
    AddressSpace space;
    space.map(arena_);
    space.timeline(ping_).wait(blocking_, 1, Deadline::after(60s), "what never comes");
    return 0;
  }};
  ASSERT_TRUE(sleeps(ping_));
  child.kill_hard();
  EXPECT_EQ(child.wait(), 128 + SIGKILL);
  AddressSpace space;
  space.map(arena_);
  NotedWaker waker;
  space.timeline(ping_).wake(2, waker);
  space.timeline(ping_).signal(1);
  space.timeline(ping_).signal(2);
  EXPECT_EQ(waker.times(), 1);
  EXPECT_TRUE(space.timeline(ping_).wait(blocking_, 2, Deadline::after(1s), "myself").ok());
}

TEST_F(TwoProcesses, AreWokenByPoisonWhenASignallerDiedBeforeItWokeThem) {
  ChildProcess sleeper{[&] {
    AddressSpace space;
    space.map(arena_);
    const Status status = space.timeline(ping_).wait(blocking_, 1, Deadline::after(60s), "a signal cut short");
    return status.ok() ? 7 : 1;
  }};
  ASSERT_TRUE(sleeps(ping_));
  word(ping_).value.store(1);  // all that a signaller killed after its first instruction has done
  AddressSpace space;
  space.map(arena_);
  space.timeline(ping_).poison({Code::peer_lost, "the signaller died"});
  EXPECT_EQ(sleeper.wait(), 7);
}

TEST_F(TwoProcesses, AreWokenByPoisonWhenAnotherDiedWhileItPoisoned) {
  ChildProcess sleeper{[&] {
    AddressSpace space;
    space.map(arena_);
    return static_cast<int>(space.timeline(ping_).wait(blocking_, 1, Deadline::after(60s), "poison cut short").code());
  }};
  ASSERT_TRUE(sleeps(ping_));
  word(ping_).poisoned.store(1);
  AddressSpace space;
  space.map(arena_);
  space.timeline(ping_).poison({Code::aborted, "a third process"});
  EXPECT_EQ(sleeper.wait(), static_cast<int>(Code::peer_lost));
}

TEST(FutexTimeline, SaysHowLongItWaitedWhereAndForWhat) {
  AddressSpace space;
  Timeline& line = space.timeline(space.make_private_timeline());
  line.signal(3);
  Blocking blocking = Blocking::on_thread("device");
  const Status late = line.wait(blocking, 5, Deadline::after(100ms), "rank 1's gradients");
  EXPECT_THAT(std::string{late.text()},
              ::testing::MatchesRegex("waited 0\\.[0-9]+ s for rank 1's gradients \\(thread device; "
                                      "line 0:0 stands at 3, wanted 5\\)"));
}

TEST(FutexTimeline, ReportsAnUnknownPoisonCodeAsCorrupt) {
  const std::atomic<std::chrono::nanoseconds> spin{0ns};
  TimelineWord word{};
  FutexTimeline line{{}, word, nullptr, spin};
  word.poison_code = 4711;
  std::fill(std::begin(word.poison_text), std::end(word.poison_text), 'x');
  word.poisoned.store(2);
  EXPECT_EQ(line.status().code(), Code::corrupt);
  word.poison_code = static_cast<std::uint32_t>(Code::timeout);
  EXPECT_EQ(line.status().text().size(), sizeof word.poison_text);
}

/// For other processes, which have only the word.
TEST(FutexTimeline, CutsAPoisonBetweenCharactersButKeepsItWholeWhereItWasTold) {
  const std::atomic<std::chrono::nanoseconds> spin{0ns};
  TimelineWord word{};
  FutexTimeline line{{}, word, nullptr, spin};
  const FutexTimeline other{{}, word, nullptr, spin};
  const std::string why = std::string(99, 'x') + "\u00e9xxx";
  line.poison({Code::aborted, why});
  EXPECT_EQ(line.status().text(), why);
  EXPECT_EQ(other.status().text(), std::string(99, 'x') + "...");
}

TEST(FutexTimeline, MakesNoSystemCallCountWhenNobodyWaits) {
  const std::atomic<std::chrono::nanoseconds> spin{0ns};
  TimelineWord word{};
  FutexTimeline line{{}, word, nullptr, spin};
  for (std::uint64_t i = 1; i <= 100; ++i) line.signal(i);
  EXPECT_EQ(word.change.load(), 0u);  // it is raised before every futex call, and only there
}

TEST(FutexTimeline, DoesNotDisturbTheWatchWhenItsOwnProcessSignals) {
  const auto arena = Arena::create(arena_id(Peer{0}, 1), 4096);
  const TimelineId id = arena->make_timeline();
  AddressSpace space;
  space.map(arena);
  const auto& word = *space.address_of<TimelineWord>({id.arena, id.index * 128ull, 128});
  NotedWaker waker;
  space.timeline(id).wake(2, waker);
  EXPECT_EQ(word.sleepers.load(), 1u);
  space.timeline(id).signal(1);
  space.timeline(id).signal(2);
  EXPECT_EQ(waker.times(), 1);
  EXPECT_EQ(word.change.load(), 0u);
  EXPECT_EQ(word.sleepers.load(), 0u);
}

TEST(FutexTimeline, WatchesMoreLinesThanTheKernelTakesAtOnce) {
  constexpr std::size_t kLines = 300;
  const auto arena = Arena::create(arena_id(Peer{0}, 1), kLines * 128);
  AddressSpace mine;
  AddressSpace theirs;
  mine.map(arena);
  theirs.map(Arena::open(arena->ticket()));
  std::deque<NotedWaker> wakers(kLines);
  std::vector<TimelineId> lines(kLines);
  for (std::size_t i = 0; i < kLines; ++i) mine.timeline(lines[i] = arena->make_timeline()).wake(1, wakers[i]);
  for (const TimelineId line : lines) theirs.timeline(line).signal(1);
  for (const NotedWaker& waker : wakers) EXPECT_TRUE(eventually([&] { return waker.times() == 1; }));
}

TEST(FutexTimeline, TellsWakersThatAreLeftWhenItsSpaceEnds) {
  NotedWaker waker;
  {
    const auto arena = Arena::create(arena_id(Peer{0}, 1), 4096);
    AddressSpace space;
    space.map(arena);
    space.timeline(arena->make_timeline()).wake(1, waker);
  }
  EXPECT_EQ(waker.times(), 1);
  EXPECT_EQ(waker.status().code(), Code::aborted);
}

}  // namespace
}  // namespace troupe::testing
