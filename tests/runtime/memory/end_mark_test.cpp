#include "runtime/memory/end_mark.hpp"

#include <gmock/gmock.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "tests/support/child_process.hpp"
#include "tests/support/end_marks.hpp"

namespace troupe::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Which marks a watch has reported, in order.
class Reports {
 public:
  EndMarkWatch::Ended callback() {
    return [this](std::size_t index) {
      const std::lock_guard lock{mutex_};
      ended_.push_back(index);
      changed_.notify_all();
    };
  }
  /// When there are so many, or none came for 10 s.
  std::vector<std::size_t> await(std::size_t count) {
    std::unique_lock lock{mutex_};
    changed_.wait_for(lock, 10s, [&] { return ended_.size() >= count; });
    return ended_;
  }

 private:
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::size_t> ended_;
};

/// A process that holds a mark until it is killed, or ends by itself on order.
class Holder {
 public:
  Holder() {
    EXPECT_EQ(pipe(places_.data()), 0);
    EXPECT_EQ(pipe(orders_.data()), 0);
    child_.emplace([this] {
      close(orders_[1]);
      const EndMark mark;
      std::optional<EndMark::Hold> hold{mark};
      const EndMark::Place place = mark.place();
      if (write(places_[1], &place, sizeof place) != sizeof place) return 1;
      char order = 0;
      if (read(orders_[0], &order, 1) != 1) return 1;
      if (order == 'l') hold.reset();
      _exit(0);
    });
    EXPECT_EQ(read(places_[0], &place_, sizeof place_), static_cast<ssize_t>(sizeof place_));
  }
  ~Holder() {
    for (const int end : {places_[0], places_[1], orders_[0], orders_[1]}) close(end);
  }
  EndMark::Place place() const { return place_; }
  void kill_hard() { child_->kill_hard(); }
  void let_go_and_end() { order('l'); }
  void end() { order('e'); }
  int wait() { return child_->wait(); }

 private:
  void order(char what) { EXPECT_EQ(write(orders_[1], &what, 1), 1); }
  std::array<int, 2> places_{};
  std::array<int, 2> orders_{};
  std::optional<ChildProcess> child_;
  EndMark::Place place_;
};

/// What a thread holds to its end, as one that is killed does: its destructor is never called.
class HeldToTheEnd {
 public:
  void begin(const EndMark& mark) { new (at_) EndMark::Hold{mark}; }

 private:
  alignas(EndMark::Hold) std::byte at_[sizeof(EndMark::Hold)];
};

class EndMarks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!end_marks_work()) GTEST_SKIP() << kNoEndMarks;
  }
};

/// The rest of the process lives on, as a process does whose memory the kernel is still taking back.
TEST_F(EndMarks, TellOfTheEndOfTheThreadThatHeldIt) {
  const EndMark mark;
  HeldToTheEnd hold;
  std::atomic<bool> holds{false}, may_end{false};
  std::thread holder{[&] {
    hold.begin(mark);
    holds = true;
    holds.notify_all();
    may_end.wait(false);
  }};
  holds.wait(false);
  Reports reports;
  const EndMarkWatch watch({{}, mark.place()}, reports.callback());
  may_end = true;
  may_end.notify_all();
  EXPECT_THAT(reports.await(1), ElementsAre(1));
  holder.join();
}

TEST_F(EndMarks, TellOfAProcessThatIsKilled) {
  Holder one, two;
  Reports reports;
  const EndMarkWatch watch({one.place(), two.place()}, reports.callback());
  two.kill_hard();
  EXPECT_THAT(reports.await(1), ElementsAre(1));
  one.kill_hard();
  EXPECT_THAT(reports.await(2), ElementsAre(1, 0));
}

TEST_F(EndMarks, TellOfAProcessThatEndsWithoutLettingGo) {
  Holder one;
  Reports reports;
  const EndMarkWatch watch({one.place()}, reports.callback());
  one.end();
  EXPECT_THAT(reports.await(1), ElementsAre(0));
}

TEST_F(EndMarks, TellEveryoneWhoWatches) {
  Holder one;
  std::array<Reports, 5> reports;
  std::vector<std::unique_ptr<EndMarkWatch>> watches;
  for (Reports& each : reports)
    watches.push_back(std::make_unique<EndMarkWatch>(std::vector{one.place()}, each.callback()));
  one.kill_hard();
  for (Reports& each : reports) EXPECT_THAT(each.await(1), ElementsAre(0));
}

TEST_F(EndMarks, SayNothingOfAProcessThatLetGoAndEnded) {
  Holder one, two;
  Reports reports;
  const EndMarkWatch watch({one.place(), two.place()}, reports.callback());
  one.let_go_and_end();
  EXPECT_EQ(one.wait(), 0);
  two.kill_hard();  // shows how far the news has come
  EXPECT_THAT(reports.await(1), ElementsAre(1));
}

TEST_F(EndMarks, AreHeardOfByWhoWatchedBeforeTheyWereHeld) {
  const EndMark mark;
  Reports reports;
  const EndMarkWatch watch({mark.place()}, reports.callback());
  HeldToTheEnd hold;
  std::thread{[&] { hold.begin(mark); }}.join();
  EXPECT_THAT(reports.await(1), ElementsAre(0));
}

TEST_F(EndMarks, AreNotLookedForInOtherFilesOrProcessesThatAreGone) {
  Holder one;
  const EndMark::Place place = one.place();
  std::array<int, 2> pipes{};
  ASSERT_EQ(pipe(pipes.data()), 0);
  Reports reports;
  const EndMarkWatch watch({{getpid(), pipes[0]}, {getpid(), 9999}, {0, 0}, {}, place}, reports.callback());
  one.kill_hard();
  EXPECT_THAT(reports.await(1), ElementsAre(4));
  EXPECT_EQ(one.wait(), 128 + SIGKILL);
  const EndMarkWatch late({place}, reports.callback());  // nothing to watch
  for (const int end : pipes) close(end);
}

TEST(EndMark, LeavesTheRobustMutexesOfAThreadAsTheyWere) {
  pthread_mutexattr_t robust;
  pthread_mutexattr_init(&robust);
  pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_t mutex;
  pthread_mutex_init(&mutex, &robust);
  std::thread{[&] {
    const EndMark mark;
    { const EndMark::Hold hold{mark}; }
    pthread_mutex_lock(&mutex);
  }}.join();
  EXPECT_EQ(pthread_mutex_lock(&mutex), EOWNERDEAD);
  pthread_mutex_consistent(&mutex);
  pthread_mutex_unlock(&mutex);
  pthread_mutex_destroy(&mutex);
  pthread_mutexattr_destroy(&robust);
}

TEST(EndMarkWatch, EndsWhenItHasHeardNothing) {
  Holder one;
  Reports reports;
  { const EndMarkWatch watch({one.place()}, reports.callback()); }
  EXPECT_THAT(reports.await(0), IsEmpty());
}

}  // namespace
}  // namespace troupe::testing
