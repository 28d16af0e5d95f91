#include "runtime/lanes/lane_loop.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/thread.hpp"
#include "tests/contracts/transport_node.hpp"
#include "tests/runtime/lanes/lane_calls.hpp"
#include "transports/loopback/loopback_transport.hpp"

namespace troupe::testing {
namespace {

class LaneLoopTest : public ::testing::Test {
 protected:
  LaneLoopTest() { alice_.connect(bob_); }
  LaneLoop loop(LaneOptions options = {}) { return {*alice_.transport, Lane::control, options, "control lane 0"}; }

  LoopbackNetwork network_;
  const TransportNode::Make make_ = [this](Peer self, AddressSpace& space) { return network_.endpoint(self, space); };
  std::deque<NotedSend> sends_;
  TransportNode alice_{Peer{0}, make_};
  TransportNode bob_{Peer{1}, make_};
};

TEST_F(LaneLoopTest, RunsEachThreadsTasksInTheOrderOfPosting) {
  constexpr int kThreads = 4;
  constexpr int kTasks = 2000;
  std::array<std::vector<int>, kThreads> ran;  // only the lane's thread writes
  std::atomic<int> count{0};
  std::deque<Call> tasks;
  for (int i = 0; i < kThreads * kTasks; ++i) {
    tasks.emplace_back([&ran, &count, i] {
      ran[std::size_t(i % kThreads)].push_back(i / kThreads);
      ++count;
    });
  }
  LaneLoop lane = loop();
  lane.start();
  std::vector<std::thread> posters;
  for (int t = 0; t < kThreads; ++t) {
    posters.emplace_back([&, t] {
      for (int i = 0; i < kTasks; ++i) EXPECT_TRUE(lane.post(tasks[std::size_t(i * kThreads + t)]));
    });
  }
  for (std::thread& poster : posters) poster.join();
  ASSERT_TRUE(wait_until([&] { return count == kThreads * kTasks; }));
  for (const auto& each : ran) {
    EXPECT_EQ(each.size(), std::size_t(kTasks));
    EXPECT_TRUE(std::is_sorted(each.begin(), each.end()));
  }
}

TEST_F(LaneLoopTest, RunsTasksOnItsOwnNamedThread) {
  LaneLoop lane = loop();
  LaneLoop other{*alice_.transport, Lane::bulk, {}, "other"};  // a lane has one owner
  std::array<char, 32> name{};
  std::atomic<bool> done{false};
  bool on_thread = false;
  bool on_other = true;
  Call task{[&] {
    pthread_getname_np(pthread_self(), name.data(), name.size());
    on_thread = lane.on_thread();
    on_other = other.on_thread();
    done = true;
  }};
  lane.start();
  EXPECT_FALSE(lane.on_thread());
  ASSERT_TRUE(lane.post(task));
  ASSERT_TRUE(wait_until([&] { return done.load(); }));
  EXPECT_STREQ(name.data(), "control lane 0");
  EXPECT_TRUE(on_thread);
  EXPECT_FALSE(on_other);
}

/// One thread posts when the task before has run, with pauses of random length: the loop is met awake, spinning,
/// arming, asleep.
void post_one_by_one(LaneLoop& lane) {
  std::atomic<int> count{0};
  int late = 0;
  Call task{[&] { ++count; }};
  for (int i = 0; i < 3000; ++i) {
    ASSERT_TRUE(lane.post(task));
    const auto posted = Clock::now();
    ASSERT_TRUE(wait_until([&] { return count == i + 1; })) << "post " << i << " was missed";
    if (Clock::now() - posted > std::chrono::milliseconds{400}) ++late;
    for (int pause = i * 37 % 2000; pause > 0; --pause) __asm__ volatile("");
  }
  EXPECT_LT(late, 4) << "posts that only the end of the longest sleep brought to light";
}

TEST_F(LaneLoopTest, WakesFromSleepForEveryPost) {
  LaneLoop lane = loop();
  lane.start();
  post_one_by_one(lane);
}

TEST_F(LaneLoopTest, TakesPostsWhileItSpins) {
  LaneLoop lane = loop({.spin = std::chrono::microseconds{20}});
  lane.start();
  post_one_by_one(lane);
}

TEST_F(LaneLoopTest, TakesPostsWhileItLearnsHowLongToSpin) {
  LaneLoop lane = loop({.spin_most = std::chrono::microseconds{50}});
  lane.start();
  post_one_by_one(lane);
}

TEST_F(LaneLoopTest, WakesFromSleepForAMessage) {
  LaneLoop lane = loop();
  lane.start();
  for (std::size_t i = 0; i < 300; ++i) {
    while (!bob_.send(alice_.self, Lane::control, i, {}, sends_.emplace_back())) bob_.progress();
    ASSERT_TRUE(wait_until([&] {
      bob_.progress();
      return alice_.count() == i + 1;
    }));
  }
}

TEST_F(LaneLoopTest, TasksMaySendAndPostAgain) {
  LaneLoop lane = loop();
  int left = 100;
  Call* self = nullptr;
  Call task{[&] {
    EXPECT_TRUE(alice_.send(bob_.self, Lane::control, 1, {}, sends_.emplace_back()));
    if (--left > 0) lane.post(*self);
  }};
  self = &task;
  lane.start();
  ASSERT_TRUE(lane.post(task));
  ASSERT_TRUE(wait_until([&] {
    bob_.progress();
    return bob_.count() == 100;
  }));
}

TEST_F(LaneLoopTest, CallsTheHookAfterRoundsThatDidSomethingUntilItDidNothing) {
  LaneLoop lane = loop();
  std::atomic<int> calls{0};
  std::atomic<int> left{0};
  lane.after_round([&] {
    ++calls;
    return left.fetch_sub(1) > 1;
  });
  Call task{[&] { left = 5; }};
  lane.start();
  ASSERT_TRUE(lane.post(task));
  EXPECT_TRUE(wait_until([&] { return calls == 5; }));
  lane.stop(Deadline::after(kSoon));
  EXPECT_EQ(calls, 5);
}

TEST_F(LaneLoopTest, StopRunsWhatWasPosted) {
  LaneLoop lane = loop();
  std::atomic<bool> go{false};
  std::atomic<int> count{0};
  Call gate{[&] { wait_until([&] { return go.load(); }); }};
  std::deque<Call> tasks;
  for (int i = 0; i < 100; ++i) tasks.emplace_back([&] { ++count; });
  lane.start();
  ASSERT_TRUE(lane.post(gate));
  for (Call& task : tasks) ASSERT_TRUE(lane.post(task));
  std::thread opener{[&] { go = true; }};
  EXPECT_TRUE(lane.stop(Deadline::after(kSoon)));
  opener.join();
  EXPECT_EQ(count, 100);
}

TEST_F(LaneLoopTest, EveryTaskThatWasAcceptedRunsHoweverStopInterleaves) {
  for (int round = 0; round < 100; ++round) {
    LaneLoop lane = loop();
    std::atomic<int> ran{0};
    int accepted = 0;
    bool refused = false;
    std::deque<Call> tasks;
    for (int i = 0; i < 1000; ++i) tasks.emplace_back([&] { ++ran; });
    lane.start();
    std::thread poster{[&] {
      for (Call& task : tasks) {
        if (!lane.post(task)) {
          refused = true;
          break;
        }
        ++accepted;
      }
    }};
    if (round % 2 == 0) {
      EXPECT_TRUE(wait_until([&] { return ran > round; }));
    }
    lane.stop(Deadline::after(kSoon));
    poster.join();
    EXPECT_EQ(ran, accepted);
    EXPECT_TRUE(refused || accepted == 1000);
  }
}

TEST_F(LaneLoopTest, RefusesTasksAfterStop) {
  LaneLoop lane = loop();
  bool ran = false;
  Call task{[&] { ran = true; }};
  lane.start();
  lane.stop(Deadline::after(kSoon));
  EXPECT_FALSE(lane.post(task));
  EXPECT_TRUE(lane.stop(Deadline::after(kSoon))) << "stopping again changes nothing";
  EXPECT_FALSE(ran);
}

TEST_F(LaneLoopTest, StopDrivesSendsToTheirEnd) {
  LaneLoop lane = loop();
  lane.start();
  NotedSend& done = sends_.emplace_back();
  Call task{[&] { EXPECT_TRUE(alice_.send(bob_.self, Lane::control, 1, {}, done)); }};
  ASSERT_TRUE(lane.post(task));
  EXPECT_TRUE(lane.stop(Deadline::after(kSoon), [&] { return done.times() > 0; }));
  EXPECT_EQ(done.times(), 1);
}

TEST_F(LaneLoopTest, StopEndsAtItsDeadlineAndTellsThatSendsWereLeft) {
  LaneLoop lane = loop();
  lane.start();
  EXPECT_FALSE(lane.stop(Deadline::after(std::chrono::milliseconds{30}), [] { return false; }));
}

TEST_F(LaneLoopTest, ALoopThatNeverStartedRunsWhatWasPostedWhenItStops) {
  LaneLoop lane = loop();
  bool ran = false;
  Call task{[&] { ran = true; }};
  ASSERT_TRUE(lane.post(task));
  EXPECT_TRUE(lane.stop(Deadline::after(kSoon)));
  EXPECT_TRUE(ran);
}

TEST_F(LaneLoopTest, CannotBeStoppedFromItsOwnThread) {
  LaneLoop lane = loop();
  std::atomic<bool> refused{false};
  Call task{[&] {
    try {
      lane.stop(Deadline::after(kSoon));
    } catch (const Error& error) {
      refused = error.code() == Code::invalid;
    }
  }};
  lane.start();
  ASSERT_TRUE(lane.post(task));
  EXPECT_TRUE(wait_until([&] { return refused.load(); }));
}

TEST_F(LaneLoopTest, KeepsItsThreadOnItsCpus) {
  const std::vector<std::uint32_t> cpus = usable_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "this process may use one CPU only";
  LaneLoop lane = loop({.cpus = {cpus.back()}});
  std::vector<std::uint32_t> kept;
  std::atomic<bool> done{false};
  lane.start();
  Call task{[&] {
    kept = usable_cpus();
    done = true;
  }};
  ASSERT_TRUE(lane.post(task));
  ASSERT_TRUE(wait_until([&] { return done.load(); }));
  EXPECT_THAT(kept, ::testing::ElementsAre(cpus.back()));
  EXPECT_EQ(usable_cpus(), cpus) << "the starting thread is no concern of the lane's";
}

TEST_F(LaneLoopTest, CpusThatTheProcessMayNotUseAreAnErrorThatNamesThem) {
  LaneLoop lane = loop({.cpus = {1023}});
  try {
    lane.start();
    FAIL() << "this machine has 1024 CPUs?";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::environment);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("control lane 0 on cpus 1023"));
  }
}

/// A transport whose lane can never be armed, and whose fd is always readable: sends to a dead peer are pending.
class StuckTransport final : public Transport {
 public:
  explicit StuckTransport(Transport& inner) : inner_(inner), fd_(dup(inner.fd(Lane::control))) {}
  ~StuckTransport() override { close(fd_); }
  std::string description() const override { return "stuck"; }
  bool carries(MemoryKind) const noexcept override { return false; }
  std::vector<std::byte> address() const override { return {}; }
  void connect(Peer, std::span<const std::byte>) override {}
  void receive(Channel, Receiver&) override {}
  bool send(Peer, Lane, Class, Channel, std::span<const std::byte>, std::span<const Memory>, SendDone&) override {
    return false;
  }
  bool progress(Lane) override {
    ++looks;
    return false;
  }
  bool arm(Lane) override { return false; }
  int fd(Lane) const override { return fd_; }
  void fence(Peer, Lane, const Status&) noexcept override {}
  std::atomic<int> looks{0};

 private:
  Transport& inner_;
  const int fd_;
};

TEST_F(LaneLoopTest, SleepsBetweenPollsOfATransportThatNeverLetsItselfBeArmed) {
  NotedSend& done = sends_.emplace_back();
  ASSERT_TRUE(bob_.send(alice_.self, Lane::control, 1, {}, done));
  bob_.progress();  // nobody takes it: alice's fd stays readable
  StuckTransport stuck{*alice_.transport};
  LaneLoop lane{stuck, Lane::control, {}, "stuck lane"};
  lane.start();
  const auto begun = Clock::now();  // a loop that just started polls for a moment
  ASSERT_TRUE(wait_until([&] { return stuck.looks > 20 && Clock::now() - begun > std::chrono::milliseconds{20}; }))
      << "it must go on looking";
  const int before = stuck.looks;
  const auto start = Clock::now();
  ASSERT_TRUE(wait_until([&] { return stuck.looks >= before + 50; }));
  EXPECT_GT(Clock::now() - start, std::chrono::milliseconds{20}) << "50 looks without a nap";
  std::atomic<bool> ran{false};
  Call task{[&] { ran = true; }};
  ASSERT_TRUE(lane.post(task));
  EXPECT_TRUE(wait_until([&] { return ran.load(); }));
}

/// A transport on which nothing happens; it records which lanes were about to sleep.
class QuietTransport final : public Transport {
 public:
  explicit QuietTransport(Transport& inner) : inner_(inner) {}
  std::string description() const override { return "quiet"; }
  bool carries(MemoryKind) const noexcept override { return false; }
  std::vector<std::byte> address() const override { return {}; }
  void connect(Peer, std::span<const std::byte>) override {}
  void receive(Channel, Receiver&) override {}
  bool send(Peer, Lane, Class, Channel, std::span<const std::byte>, std::span<const Memory>, SendDone&) override {
    return false;
  }
  bool progress(Lane) override { return false; }
  bool arm(Lane lane) override {
    armed[static_cast<std::size_t>(lane)] = true;
    return true;
  }
  int fd(Lane lane) const override { return inner_.fd(lane); }
  void fence(Peer, Lane, const Status&) noexcept override {}
  std::array<std::atomic<bool>, 2> armed{};

 private:
  Transport& inner_;
};

// Its thread would have to be woken, and, where both have one core, could not run before the poster sleeps.
TEST_F(LaneLoopTest, DrivesTheLaneToWhichItPostsInsteadOfWakingThatOnesThread) {
  QuietTransport quiet{*alice_.transport};
  LaneLoop bulk{quiet, Lane::bulk, {}, "bulk lane"};
  LaneLoop control{quiet, Lane::control, {.spin = std::chrono::microseconds{200}}, "control lane"};
  control.also_drives(bulk);
  bulk.start();
  control.start();
  bool along = false;
  const Deadline deadline = Deadline::after(kSoon);
  while (!along && !deadline.passed()) {
    for (auto& armed : quiet.armed) armed = false;
    std::atomic<bool> ran{false};
    std::thread::id poster;
    Call second{[&] {
      along = std::this_thread::get_id() == poster;
      ran = true;
    }};
    Call first{[&] {
      poster = std::this_thread::get_id();
      bulk.post(second);
    }};
    Call nothing{[] {}};
    ASSERT_TRUE(control.post(nothing));
    ASSERT_TRUE(wait_until([&] { return quiet.armed[0] && quiet.armed[1]; })) << "both lanes go to sleep";
    ASSERT_TRUE(control.post(first));
    ASSERT_TRUE(wait_until([&] { return ran.load(); }));
  }
  EXPECT_TRUE(along);
  EXPECT_TRUE(control.stop(Deadline::after(kSoon)));
}

}  // namespace
}  // namespace troupe::testing
