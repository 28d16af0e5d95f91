#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/memory/timeline.hpp"

// What every Timeline promises. An implementation instantiates the suite:
//   INSTANTIATE_TEST_SUITE_P(Futex, TimelineContract, Values(TimelineCase{"Private", make_private_line}),
//   TimelineCase::name_of);
namespace troupe::testing {

/// One fresh line and the object that holds it.
class TimelineHome {
 public:
  virtual ~TimelineHome() = default;
  /// The same line at each call; its value is 0 at first.
  virtual Timeline& line() = 0;
  /// What a peer would use to signal the same line: another object over the same word, or the line itself.
  virtual Timeline& peer() { return line(); }
  /// False for a line that one thread drives (a logical clock): tests with threads are left out.
  virtual bool has_threads() const { return true; }
  /// Executes what is due, for lines that a thread must drive.
  virtual void settle() {}
};

struct TimelineCase {
  std::string name;
  std::function<std::unique_ptr<TimelineHome>()> make;

  static std::string name_of(const ::testing::TestParamInfo<TimelineCase>& info) { return info.param.name; }
  friend void PrintTo(const TimelineCase& c, std::ostream* out) { *out << c.name; }
};

/// Records its notifications.
class NotedWaker final : public Waker {
 public:
  void reached(Point point, Status status) noexcept override {
    {
      const std::lock_guard lock{mutex_};
      point_ = point;
      status_ = std::move(status);
    }
    times_.fetch_add(1);
  }
  int times() const noexcept { return times_.load(); }
  Point point() const {
    const std::lock_guard lock{mutex_};
    return point_;
  }
  Status status() const {
    const std::lock_guard lock{mutex_};
    return status_;
  }

 private:
  mutable std::mutex mutex_;  // guards point_, status_
  Point point_;
  Status status_;
  std::atomic<int> times_{0};
};

class TimelineContract : public ::testing::TestWithParam<TimelineCase> {
 protected:
  static constexpr std::chrono::seconds kSoon{10};

  Timeline& line() { return home_->line(); }
  Timeline& peer() { return home_->peer(); }
  bool has_threads() const { return home_->has_threads(); }
  /// Whether `waker` is called within a generous time.
  bool told(const NotedWaker& waker) {
    const Deadline deadline = Deadline::after(kSoon);
    while (waker.times() == 0 && !deadline.passed()) {
      home_->settle();
      std::this_thread::yield();
    }
    return waker.times() == 1;
  }
  Status wait_for(std::uint64_t at, Clock::duration span = kSoon) {
    Blocking blocking = Blocking::on_thread("test");
    return line().wait(blocking, at, Deadline::after(span), "the test");
  }
  void settle() { home_->settle(); }

 private:
  std::unique_ptr<TimelineHome> home_ = GetParam().make();
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TimelineContract);

TEST_P(TimelineContract, StartsAtZeroAndUnpoisoned) {
  EXPECT_EQ(line().value(), 0u);
  EXPECT_TRUE(line().status().ok());
}

TEST_P(TimelineContract, ShowsTheLastValueSignalled) {
  line().signal(3);
  settle();
  EXPECT_EQ(line().value(), 3u);
  line().signal(std::uint64_t{1} << 40);
  settle();
  EXPECT_EQ(line().value(), std::uint64_t{1} << 40);
}

TEST_P(TimelineContract, TellsAtOnceOfAPointThatIsReached) {
  line().signal(5);
  settle();
  NotedWaker waker;
  line().wake(5, waker);
  ASSERT_TRUE(told(waker));
  EXPECT_TRUE(waker.status().ok());
  EXPECT_EQ(waker.point(), (Point{line().id(), 5}));
}

TEST_P(TimelineContract, TellsWhenAPointIsReachedLater) {
  NotedWaker waker;
  line().wake(2, waker);
  line().signal(1);
  settle();
  EXPECT_EQ(waker.times(), 0);
  line().signal(2);
  ASSERT_TRUE(told(waker));
  EXPECT_TRUE(waker.status().ok());
  EXPECT_EQ(waker.point(), (Point{line().id(), 2}));
}

TEST_P(TimelineContract, TellsOfASignalByAPeer) {
  NotedWaker waker;
  line().wake(2, waker);
  peer().signal(2);
  ASSERT_TRUE(told(waker));
  EXPECT_TRUE(waker.status().ok());
  EXPECT_EQ(line().value(), 2u);
}

TEST_P(TimelineContract, TellsOfPoisonByAPeer) {
  NotedWaker waker;
  line().wake(2, waker);
  peer().poison({Code::peer_lost, "rank 1 died"});
  ASSERT_TRUE(told(waker));
  EXPECT_EQ(waker.status().code(), Code::peer_lost);
  EXPECT_EQ(waker.status().text(), "rank 1 died");
}

TEST_P(TimelineContract, TellsEveryWakerThatOneSignalReaches) {
  std::deque<NotedWaker> wakers(20);
  for (std::size_t i = 0; i < wakers.size(); ++i) line().wake(1 + i * 7 % 10, wakers[i]);
  line().signal(5);
  settle();
  for (std::size_t i = 0; i < wakers.size(); ++i) {
    const bool due = 1 + i * 7 % 10 <= 5;
    EXPECT_EQ(due ? told(wakers[i]) : wakers[i].times() != 0, due) << i;
  }
  line().signal(10);
  for (NotedWaker& waker : wakers) EXPECT_TRUE(told(waker));
}

TEST_P(TimelineContract, PoisonTellsWhoWaitsAboveTheValueWhy) {
  NotedWaker reached;
  NotedWaker above;
  line().wake(4, above);
  line().signal(3);
  line().poison({Code::device_fault, "the device stopped"});
  line().wake(3, reached);
  ASSERT_TRUE(told(above));
  ASSERT_TRUE(told(reached));
  EXPECT_EQ(above.status().code(), Code::device_fault);
  EXPECT_EQ(above.status().text(), "the device stopped");
  EXPECT_TRUE(reached.status().ok());
}

TEST_P(TimelineContract, PoisonTellsWhoAsksLaterToo) {
  line().poison({Code::aborted, "a newer view"});
  settle();
  NotedWaker waker;
  line().wake(1, waker);
  ASSERT_TRUE(told(waker));
  EXPECT_EQ(waker.status().code(), Code::aborted);
}

TEST_P(TimelineContract, PoisonReleasesWhoComparesTheWordAloneAndNobodyTakesItForSuccess) {
  line().signal(5);
  settle();
  EXPECT_EQ(peer().word(), 5u);
  peer().poison({Code::peer_lost, "rank 2 is lost"});
  settle();
  for (const std::uint64_t at : {std::uint64_t{6}, std::uint64_t{1} << 40, Timeline::kPoisonedWord - 1}) {
    EXPECT_GE(line().word(), at) << "a device still waits";
    EXPECT_LT(line().value(), at) << "it takes the poison for its point";
  }
  EXPECT_EQ(line().value(), 5u);
  EXPECT_EQ(line().status().code(), Code::peer_lost);
}

TEST_P(TimelineContract, ASignalDoesNotTakePoisonBack) {
  peer().poison({Code::aborted, "view 8 follows"});
  line().signal(9);
  settle();
  EXPECT_EQ(line().value(), 9u);
  EXPECT_GE(line().word(), Timeline::kPoisonedWord);
  EXPECT_EQ(line().status().code(), Code::aborted);
}

TEST_P(TimelineContract, KeepsBothWhenSignalsAndPoisonMeet) {
  if (!has_threads()) GTEST_SKIP() << "one thread drives this line";
  constexpr std::uint64_t kSignals = 20000;
  std::atomic<bool> released{false};
  std::thread waiter([&] {
    const Deadline deadline = Deadline::after(kSoon);
    while (line().word() <= kSignals && !deadline.passed()) std::this_thread::yield();
    released = true;
  });
  std::thread poisoner([&] {
    while (line().value() < kSignals / 2) std::this_thread::yield();
    peer().poison({Code::aborted, "the end"});
  });
  for (std::uint64_t to = 1; to <= kSignals; ++to) line().signal(to);
  poisoner.join();
  waiter.join();
  EXPECT_TRUE(released);
  EXPECT_EQ(line().value(), kSignals);
  EXPECT_GE(peer().word(), Timeline::kPoisonedWord);
  EXPECT_EQ(peer().status().text(), "the end");
}

TEST_P(TimelineContract, CountsWhatSeveralAdd) {
  NotedWaker two, seven;
  line().wake(2, two);
  line().wake(7, seven);
  line().add(1);
  settle();
  EXPECT_EQ(two.times(), 0);
  peer().add(3);
  ASSERT_TRUE(told(two));
  EXPECT_EQ(line().value(), 4u);
  const auto add = [this](int i) { (i % 2 == 0 ? line() : peer()).add(1); };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    if (has_threads())
      threads.emplace_back(add, i);
    else
      add(i);
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(told(seven));
  EXPECT_TRUE(seven.status().ok());
  EXPECT_EQ(line().value(), 8u);
  peer().poison({Code::aborted, "over"});
  line().add(1);
  settle();
  EXPECT_EQ(line().value(), 9u);
  EXPECT_EQ(line().word(), 9u + Timeline::kPoisonedWord);
}

TEST_P(TimelineContract, TheFirstPoisonStays) {
  line().poison({Code::timeout, "first"});
  line().poison({Code::aborted, "second"});
  settle();
  EXPECT_EQ(line().status().code(), Code::timeout);
  EXPECT_EQ(line().status().text(), "first");
}

TEST_P(TimelineContract, WaitIsOverAtOnceWhenThePointIsReached) {
  line().signal(9);
  settle();
  EXPECT_TRUE(wait_for(9).ok());
  EXPECT_TRUE(wait_for(0).ok());
}

TEST_P(TimelineContract, WaitReportsThePoisonAboveTheValueOnly) {
  line().signal(2);
  line().poison({Code::peer_lost, "gone"});
  settle();
  EXPECT_TRUE(wait_for(2).ok());
  EXPECT_EQ(wait_for(3).code(), Code::peer_lost);
  EXPECT_EQ(wait_for(3).text(), "gone");
}

TEST_P(TimelineContract, WaitNamesWhatItWaitedForAtItsDeadline) {
  const Status late = wait_for(1, std::chrono::milliseconds{20});
  EXPECT_EQ(late.code(), Code::timeout);
  EXPECT_NE(late.text().find("for the test"), std::string_view::npos) << late.text();
}

TEST_P(TimelineContract, WaitEndsWhenAnotherThreadSignals) {
  if (!has_threads()) GTEST_SKIP() << "one thread drives this line";
  for (std::uint64_t at = 1; at <= 200; ++at) {
    std::thread other{[&] { peer().signal(at); }};
    const Status status = wait_for(at);
    other.join();
    ASSERT_TRUE(status.ok()) << status.text();
  }
}

TEST_P(TimelineContract, WaitEndsWhenAnotherThreadPoisons) {
  if (!has_threads()) GTEST_SKIP() << "one thread drives this line";
  std::thread other{[&] { peer().poison({Code::aborted, "enough"}); }};
  const Status status = wait_for(1);
  other.join();
  EXPECT_EQ(status.code(), Code::aborted);
}

TEST_P(TimelineContract, WhatWasWrittenBeforeASignalIsSeenAfterTheWait) {
  if (!has_threads()) GTEST_SKIP() << "one thread drives this line";
  constexpr std::uint64_t kRounds = 2000;
  std::vector<std::uint64_t> written(kRounds + 1);  // plain memory: a sanitizer sees a missing order
  std::thread writer{[&] {
    for (std::uint64_t i = 1; i <= kRounds; ++i) {
      written[i] = i;
      line().signal(i);  // not the peer: a sanitizer does not know that two mappings are one memory
    }
  }};
  for (std::uint64_t i = 1; i <= kRounds; ++i) {
    const Status status = wait_for(i);
    EXPECT_TRUE(status.ok()) << status.text();
    if (!status.ok()) break;
    EXPECT_EQ(written[i], i);
  }
  writer.join();
}

/// Two threads register wakers at random points while a third signals and, in some rounds, ends with poison.
TEST_P(TimelineContract, TellsEveryWakerExactlyOnceHoweverThreadsInterleave) {
  if (!has_threads()) GTEST_SKIP() << "one thread drives this line";
  constexpr std::uint32_t kRounds = 1000;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    std::deque<NotedWaker> wakers(8);
    auto home = GetParam().make();
    std::atomic<int> ready{0};
    const auto start_together = [&] {
      ready.fetch_add(1);
      while (ready.load() < 3) std::this_thread::yield();
    };
    const auto enter = [&](std::uint32_t first) {
      std::mt19937 random{round * 3 + first};
      start_together();
      for (std::size_t i = first; i < wakers.size(); i += 2) home->line().wake(1 + random() % 4, wakers[i]);
    };
    std::thread a{enter, 0u};
    std::thread b{enter, 1u};
    start_together();
    Timeline& signaller = round % 3 == 0 ? home->line() : home->peer();
    const std::uint64_t last = round % 4 == 0 ? 2 : 4;
    for (std::uint64_t value = 1; value <= last; ++value) signaller.signal(value);
    if (last < 4) signaller.poison({Code::aborted, "half way"});
    a.join();
    b.join();
    for (const NotedWaker& waker : wakers) {
      ASSERT_TRUE(told(waker)) << "round " << round << ", told " << waker.times() << " times";
      EXPECT_EQ(waker.status().ok(), waker.point().value <= last) << "round " << round;
    }
    home.reset();
    for (const NotedWaker& waker : wakers) ASSERT_EQ(waker.times(), 1) << "round " << round << ", told again";
  }
}

}  // namespace troupe::testing
