#include "runtime/lanes/lane_wait.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "runtime/base/error.hpp"
#include "tests/contracts/transport_node.hpp"
#include "tests/runtime/lanes/lane_calls.hpp"
#include "transports/loopback/loopback_transport.hpp"

namespace troupe::testing {
namespace {

using ::testing::HasSubstr;

/// Counts what took so long that only the end of a longest sleep (500 ms) can have brought it to light. A few may, on a
/// busy machine.
class Lateness {
 public:
  void begin() { begun_ = Clock::now(); }
  void end() { late_ += Clock::now() - begun_ > std::chrono::milliseconds{400}; }
  bool of_few() const { return late_ < 4; }

 private:
  Clock::time_point begun_;
  int late_ = 0;
};

/// Some time up to about 200 us, another one for each round: who waits is met in all its states.
void pause_in(std::uint64_t round) {
  for (auto left = static_cast<int>(round * 7919 % 400000); left > 0; --left) __asm__ volatile("");
}

/// A lane, a line of this process, and a second thread that waits for it.
class LaneWaitTest : public ::testing::Test {
 protected:
  LaneWaitTest() { alice_.connect(bob_); }
  ~LaneWaitTest() override { join(); }

  Status wait(std::uint64_t at, Clock::duration at_most = kSoon) {
    Blocking blocking = Blocking::on_thread("test");
    return waits_.wait(blocking, line_, at, Deadline::after(at_most), "what a test waits for");
  }
  void start_waiter(std::uint64_t at) {
    waiter_ = std::thread{[this, at] { waited_ = wait(at); }};
  }
  Status join() {
    if (waiter_.joinable()) waiter_.join();
    return waited_;
  }
  /// Posts tasks, one after the other, until one has run on that thread.
  bool comes_to_run_on(std::thread::id thread) {
    return wait_until([&] { return thread_of_a_task() == thread; });
  }
  std::thread::id thread_of_a_task() {
    std::thread::id ran_on;
    std::atomic<bool> ran{false};
    Call task{[&] {
      EXPECT_TRUE(lane_.on_thread());
      ran_on = std::this_thread::get_id();
      ran = true;
    }};
    EXPECT_TRUE(lane_.post(task));
    EXPECT_TRUE(wait_until([&] { return ran.load(); }));
    return ran_on;
  }
  void message_to_alice(std::uint64_t number) {
    while (!bob_.send(alice_.self, Lane::bulk, number, {}, sends_.emplace_back())) bob_.progress();
    bob_.progress();
  }

  LoopbackNetwork network_;
  const TransportNode::Make make_ = [this](Peer self, AddressSpace& space) { return network_.endpoint(self, space); };
  std::deque<NotedSend> sends_;
  TransportNode alice_{Peer{0}, make_};
  TransportNode bob_{Peer{1}, make_};
  AddressSpace space_;
  Timeline& line_ = space_.timeline(space_.make_private_timeline());
  LaneLoop lane_{*alice_.transport, Lane::bulk, {}, "lane"};
  LaneWait waits_{lane_, std::chrono::nanoseconds{0}};
  std::thread waiter_;
  Status waited_;
};

TEST_F(LaneWaitTest, DrivesTheLaneWhileItsThreadSleeps) {
  lane_.start();
  start_waiter(1);
  EXPECT_TRUE(comes_to_run_on(waiter_.get_id()));
  EXPECT_FALSE(lane_.on_thread());
  line_.signal(1);
  EXPECT_TRUE(join().ok());
}

TEST_F(LaneWaitTest, GivesTheLaneBackWhenTheWaitIsOver) {
  lane_.start();
  start_waiter(1);
  EXPECT_TRUE(comes_to_run_on(waiter_.get_id()));
  line_.signal(1);
  const std::thread::id waiter = waiter_.get_id();
  EXPECT_TRUE(join().ok());
  const std::thread::id after = thread_of_a_task();
  EXPECT_NE(after, waiter);
  EXPECT_NE(after, std::this_thread::get_id());
  message_to_alice(1);
  EXPECT_TRUE(wait_until([&] { return alice_.count() == 1; })) << "its own thread hears of messages again";
}

TEST_F(LaneWaitTest, IsOverAsSoonAsTheLaneItselfMovesTheLine) {
  lane_.after_round([&] {
    if (alice_.count() > line_.value()) line_.signal(alice_.count());
    return false;
  });
  lane_.start();
  Lateness late;
  for (std::uint64_t round = 1; round <= 500; ++round) {
    start_waiter(round);
    pause_in(round);
    late.begin();
    message_to_alice(round);
    EXPECT_TRUE(join().ok());
    late.end();
  }
  EXPECT_TRUE(late.of_few());
}

TEST_F(LaneWaitTest, NoticesWhatOthersDoToTheLine) {
  lane_.start();
  Lateness late;
  for (std::uint64_t round = 1; round <= 1000; ++round) {
    start_waiter(round);
    pause_in(round);
    late.begin();
    line_.signal(round);
    EXPECT_TRUE(join().ok());
    late.end();
  }
  EXPECT_TRUE(late.of_few());
}

TEST_F(LaneWaitTest, RunsWhatIsPostedWhileItSleeps) {
  lane_.start();
  start_waiter(1);
  EXPECT_TRUE(comes_to_run_on(waiter_.get_id()));
  Lateness late;
  for (std::uint64_t round = 1; round <= 500; ++round) {
    pause_in(round);
    late.begin();
    thread_of_a_task();
    late.end();
  }
  EXPECT_TRUE(late.of_few());
  line_.signal(1);
  EXPECT_TRUE(join().ok());
}

TEST_F(LaneWaitTest, EndsWithThePoisonOfTheLine) {
  lane_.start();
  start_waiter(1);
  EXPECT_TRUE(comes_to_run_on(waiter_.get_id()));
  line_.poison({Code::peer_lost, "rank 7 is gone"});
  const Status status = join();
  EXPECT_EQ(status.code(), Code::peer_lost);
  EXPECT_THAT(std::string(status.text()), HasSubstr("rank 7 is gone"));
}

TEST_F(LaneWaitTest, EndsAtItsDeadlineAndSaysWhatItWaitedFor) {
  lane_.start();
  for (int i = 0; i < 3; ++i) {
    const Status status = wait(1, std::chrono::milliseconds{30});
    EXPECT_EQ(status.code(), Code::timeout);
    EXPECT_THAT(std::string(status.text()), HasSubstr("for what a test waits for (thread test; line 0:0 stands at 0"));
  }
  line_.signal(1);  // those who waited are told, though nobody waits any more
  EXPECT_TRUE(wait(1).ok());
}

TEST_F(LaneWaitTest, RingsTheAlarmOfTheLaneThatItDrives) {
  std::atomic<int> rung_by_waiter{0};
  std::atomic<bool> waits{false};
  std::thread::id waiter;
  lane_.on_time([&] {
    if (waits && std::this_thread::get_id() == waiter) ++rung_by_waiter;
    return Clock::now() + std::chrono::milliseconds{2};
  });
  lane_.start();
  waiter_ = std::thread{[&] {
    waiter = std::this_thread::get_id();
    waits = true;
    waited_ = wait(1);
  }};
  EXPECT_TRUE(wait_until([&] { return rung_by_waiter >= 20; }));
  line_.signal(1);
  EXPECT_TRUE(join().ok());
}

TEST_F(LaneWaitTest, DoesWhatASignalSetsOffWhenToldOfItBefore) {
  lane_.start();
  const std::thread::id self = std::this_thread::get_id();
  // The lane's thread may happen to be awake; then it runs the task.
  EXPECT_TRUE(wait_until([&] {
    const std::uint64_t next = line_.value() + 1;
    std::thread::id ran_on;
    Call task{[&] {
      ran_on = std::this_thread::get_id();
      line_.signal(next);
    }};
    waits_.about_to_wait();
    EXPECT_TRUE(lane_.post(task));
    EXPECT_TRUE(wait(next).ok());
    return ran_on == self;
  }));
}

TEST_F(LaneWaitTest, LeavesWhatWasSetOffToTheLaneWhenThereIsNothingToWaitFor) {
  lane_.start();
  line_.signal(1);
  Lateness late;
  for (std::uint64_t round = 0; round < 100; ++round) {
    std::atomic<bool> ran{false};
    Call task{[&] { ran = true; }};
    pause_in(round);
    waits_.about_to_wait();
    late.begin();
    EXPECT_TRUE(lane_.post(task));
    EXPECT_TRUE(wait(1).ok());
    EXPECT_TRUE(wait_until([&] { return ran.load(); }));
    late.end();
  }
  EXPECT_TRUE(late.of_few());
}

TEST_F(LaneWaitTest, LeavesTheLaneAloneWhereOtherProcessesMoveTheLine) {
  space_.map(Arena::create(arena_id(Peer{0}, 1), 1 << 16));
  Timeline& shared = space_.timeline(space_.arena(arena_id(Peer{0}, 1)).make_timeline());
  lane_.start();
  waiter_ = std::thread{[&] {
    Blocking blocking = Blocking::on_thread("test");
    waited_ = waits_.wait(blocking, shared, 1, Deadline::after(kSoon), "another process");
  }};
  for (int i = 0; i < 200; ++i) EXPECT_NE(thread_of_a_task(), waiter_.get_id());
  shared.signal(1);
  EXPECT_TRUE(join().ok());
}

TEST_F(LaneWaitTest, SeveralThreadsWaitAtOnce) {
  lane_.start();
  start_waiter(1);
  std::thread second{[this] { EXPECT_TRUE(wait(2).ok()); }};
  line_.signal(1);
  EXPECT_TRUE(join().ok());
  EXPECT_TRUE(comes_to_run_on(second.get_id()));
  line_.signal(2);
  second.join();
}

TEST_F(LaneWaitTest, WaitsOnWithoutALaneThatHasStopped) {
  lane_.start();
  start_waiter(1);
  EXPECT_TRUE(comes_to_run_on(waiter_.get_id()));
  EXPECT_TRUE(lane_.stop(Deadline::after(kSoon)));
  line_.signal(1);
  EXPECT_TRUE(join().ok());
}

TEST_F(LaneWaitTest, LeavesALaneThatIsToStopAtOnce) {
  Lateness late;
  for (std::uint64_t round = 1; round <= 8; ++round) {
    LaneLoop lane{*alice_.transport, Lane::bulk, {}, "lane"};
    LaneWait waits{lane, std::chrono::nanoseconds{0}};
    lane.start();
    waiter_ = std::thread{[&] {
      Blocking blocking = Blocking::on_thread("test");
      waited_ = waits.wait(blocking, line_, round, Deadline::after(kSoon), "a test");
    }};
    pause_in(round * 50);
    pause_in(round * 50);
    late.begin();
    EXPECT_TRUE(lane.stop(Deadline::after(kSoon)));
    late.end();
    line_.signal(round);
    EXPECT_TRUE(join().ok());
  }
  EXPECT_TRUE(late.of_few());
}

/// A transport whose event queue has gone when the lane is to be given back.
class VanishingTransport final : public Transport {
 public:
  explicit VanishingTransport(Transport& inner) : inner_(inner) {}
  std::string description() const override { return "vanishing"; }
  bool carries(MemoryKind) const noexcept override { return false; }
  std::vector<std::byte> address() const override { return {}; }
  void connect(Peer, std::span<const std::byte>) override {}
  void receive(Channel, Receiver&) override {}
  bool send(Peer, Lane, Class, Channel, std::span<const std::byte>, std::span<const Memory>, SendDone&) override {
    return false;
  }
  bool progress(Lane) override { return false; }
  bool arm(Lane) override { return true; }
  int fd(Lane lane) const override { return gone ? -1 : inner_.fd(lane); }
  void fence(Peer, Lane, const Status&) noexcept override {}
  std::atomic<bool> gone{false};

 private:
  Transport& inner_;
};

TEST_F(LaneWaitTest, GivesALaneBackEvenWhereTheKernelRefuses) {
  VanishingTransport transport{*alice_.transport};
  LaneLoop lane{transport, Lane::bulk, {}, "lane"};
  LaneWait waits{lane, std::chrono::nanoseconds{0}};
  lane.start();
  std::atomic<bool> drives{false};
  waiter_ = std::thread{[&] {
    Blocking blocking = Blocking::on_thread("test");
    waited_ = waits.wait(blocking, line_, 1, Deadline::after(kSoon), "a test");
  }};
  while (!drives) {  // until the waiter has the lane
    std::atomic<bool> ran{false};
    Call task{[&] {
      drives = std::this_thread::get_id() == waiter_.get_id();
      if (drives) transport.gone = true;
      ran = true;
    }};
    ASSERT_TRUE(lane.post(task));
    ASSERT_TRUE(wait_until([&] { return ran.load(); }));
  }
  line_.signal(1);
  EXPECT_TRUE(join().ok());
  EXPECT_TRUE(lane.stop(Deadline::after(kSoon)));
}

TEST_F(LaneWaitTest, WaitsWithoutALaneThatNeverStarted) {
  start_waiter(1);
  line_.signal(1);
  EXPECT_TRUE(join().ok());
}

/// Posters, a waiter that comes and goes, and the end of the lane, all at once: what was accepted runs, once, in each
/// poster's order.
TEST(LaneWaitRace, EveryTaskThatWasAcceptedRunsOnce) {
  for (int round = 0; round < 60; ++round) {
    LoopbackNetwork network;
    AddressSpace space;
    const auto transport = network.endpoint(Peer{0}, space);
    Timeline& line = space.timeline(space.make_private_timeline());
    LaneLoop lane{*transport, Lane::bulk, {}, "lane"};
    LaneWait waits{lane, std::chrono::microseconds{round % 3 * 5}};
    std::atomic<int> running{0};
    int ran = 0;  // whoever drives the lane
    int accepted = 0;
    std::atomic<bool> stopped{false};
    std::deque<Call> tasks;
    for (int i = 0; i < 1000; ++i) {
      tasks.emplace_back([&, i] {
        EXPECT_EQ(running.fetch_add(1), 0) << "two drive the lane";
        EXPECT_EQ(ran, i);
        ++ran;
        if (i % 3 == 0) line.signal(line.value() + 1);
        running.fetch_sub(1);
      });
    }
    lane.start();
    std::thread waiter{[&] {
      Blocking blocking = Blocking::on_thread("test");
      while (!stopped) {
        if (round % 2 == 0) waits.about_to_wait();
        // Mostly a task signals the line, sometimes nothing does.
        waits.wait(blocking, line, line.value() + 1, Deadline::after(std::chrono::milliseconds{1}), "a task");
      }
    }};
    std::thread poster{[&] {
      for (Call& task : tasks) {
        if (!lane.post(task)) break;
        ++accepted;
        for (int pause = accepted * 37 % 500; pause > 0; --pause) __asm__ volatile("");
      }
    }};
    if (round % 4 < 2) poster.join();
    EXPECT_TRUE(lane.stop(Deadline::after(kSoon)));
    stopped = true;
    waiter.join();
    if (poster.joinable()) poster.join();
    EXPECT_EQ(ran, accepted);
  }
}

}  // namespace
}  // namespace troupe::testing
