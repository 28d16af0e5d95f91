#include "actors/remote/calls.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/actors/remote/asking.hpp"
#include "tests/actors/remote/injector.hpp"
#include "tests/support/child_process.hpp"

// Calls between two ends, without mailboxes and through them.
namespace troupe::test {
namespace {

using ::testing::HasSubstr;
using troupe::testing::eventually;

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

/// The outcome of one call, for a test to wait for.
class Outcome final : public CallDone {
 public:
  void answered(const Status& status, std::span<const std::byte> answer) noexcept override {
    const std::scoped_lock hold(mutex_);
    status_ = status;
    answer_.assign(answer.begin(), answer.end());
    ++times_;
    told_.notify_all();
  }
  bool wait() {
    std::unique_lock hold(mutex_);
    return told_.wait_for(hold, kLong, [&] { return times_ > 0; });
  }
  int times() {
    const std::scoped_lock hold(mutex_);
    return times_;
  }
  const Status& status() const { return status_; }  // behind wait()
  const Bytes& answer() const { return answer_; }

 private:
  std::mutex mutex_;  // guards the rest
  std::condition_variable told_;
  Status status_;
  Bytes answer_;
  int times_ = 0;
};

/// The number of calls that arrived in each way, and those that were kept.
struct CallsSeen {
  std::atomic<int> taken{0};
  std::atomic<int> messages{0};
  std::mutex mutex;  // guards the rest
  std::thread::id thread;
  std::vector<LateCall> kept;

  std::size_t count_kept() {
    const std::scoped_lock hold(mutex);
    return kept.size();
  }
};

/// Answers with the reversed question; fails an empty one, keeps 1, leaves 2 without an answer, and takes long for 4.
class Turner : public caf::event_based_actor, public CallTaker {
 public:
  Turner(caf::actor_config& config, CallsSeen* seen) : caf::event_based_actor(config), seen_(*seen) {}

  caf::behavior make_behavior() override {
    return {[this](const CallMessage& message) {
              ++seen_.messages;
              Bytes answer = message.question;
              std::reverse(answer.begin(), answer.end());
              if (answer.empty()) return message.call.fail({Code::invalid, "nothing was asked"});
              message.call.answer(answer);
            },
            [this](Quit) { quit(); }};
  }
  void take(Call& call) noexcept override {
    ++seen_.taken;
    const auto question = call.question();
    {
      const std::scoped_lock hold(seen_.mutex);
      seen_.thread = std::this_thread::get_id();
      if (question.size() == 1 && question[0] == std::byte{1}) return seen_.kept.push_back(call.keep());
    }
    if (question.size() == 1 && question[0] == std::byte{2}) return;
    if (question.size() == 1 && question[0] == std::byte{4}) {
      for (const auto until = core_time() + std::chrono::milliseconds(1); core_time() < until;) {
      }
    }
    if (question.empty()) return call.fail({Code::invalid, "nothing was asked"});
    std::reverse_copy(question.begin(), question.end(), call.buffer().begin());
    call.answer(question.size());
  }

 private:
  CallsSeen& seen_;
};

class Calls : public ::testing::Test {
 protected:
  Calls() : actor(world.there->remote->spawn_inline<Turner>(&seen)) {
    far = at_other_end(*world.there, *world.here, actor);
  }
  void call(const caf::actor& whom, const Bytes& question, Outcome& outcome) {
    world.here->remote->call(world.here->remote->callee(whom), question, outcome);
  }

  CallsSeen seen;
  LoopbackWorld world{{}, {}, {.inline_limit = kLong}};
  caf::actor actor;
  caf::actor far;
};

TEST_F(Calls, AreAnsweredOnTheLaneOfTheOtherProcessPastTheMailbox) {
  std::promise<std::thread::id> lane;
  struct Task final : LaneTask {
    explicit Task(std::promise<std::thread::id>& to) : told(to) {}
    void run() noexcept override { told.set_value(std::this_thread::get_id()); }
    std::promise<std::thread::id>& told;
  } task{lane};
  ASSERT_TRUE(world.there->control->post(task));
  for (int i = 0; i < 200; ++i) {
    Outcome outcome;
    call(far, bytes_of({3, 4, i}), outcome);
    ASSERT_TRUE(outcome.wait());
    ASSERT_TRUE(outcome.status().ok()) << outcome.status().text();
    ASSERT_EQ(outcome.answer(), bytes_of({i, 4, 3}));
  }
  EXPECT_EQ(seen.messages, 0);
  EXPECT_EQ(seen.thread, lane.get_future().get());
}

TEST_F(Calls, HaveAsManyBytesAsTheyMay) {
  Outcome outcome;
  Bytes question(kMostCallBytes);
  for (std::size_t i = 0; i < question.size(); ++i) question[i] = static_cast<std::byte>(i * 7);
  call(far, question, outcome);
  ASSERT_TRUE(outcome.wait());
  std::reverse(question.begin(), question.end());
  EXPECT_EQ(outcome.answer(), question);
  question.emplace_back();
  EXPECT_THROW(call(far, question, outcome), Error);
}

TEST_F(Calls, OfAnActorOfTheSameProcessAreTakenTheSameWay) {
  Outcome outcome;
  world.there->remote->call(world.there->remote->callee(actor), bytes_of({5, 6}), outcome);
  ASSERT_TRUE(outcome.wait());
  EXPECT_EQ(outcome.answer(), bytes_of({6, 5}));
  EXPECT_EQ(seen.messages, 0);
}

TEST_F(Calls, ReachAnActorThatIsNotInlineAsMessages) {
  const caf::actor scheduled = world.there->system.spawn<Turner>(&seen);
  const caf::actor remote = at_other_end(*world.there, *world.here, scheduled);
  Outcome outcome, failed;
  call(remote, bytes_of({7, 8}), outcome);
  call(remote, {}, failed);
  ASSERT_TRUE(outcome.wait());
  ASSERT_TRUE(failed.wait());
  EXPECT_EQ(outcome.answer(), bytes_of({8, 7}));
  EXPECT_EQ(failed.status().code(), Code::invalid);
  EXPECT_EQ(seen.taken, 0);
  EXPECT_EQ(seen.messages, 2);
}

TEST_F(Calls, TellTheActorsOwnFailure) {
  Outcome outcome;
  call(far, {}, outcome);
  ASSERT_TRUE(outcome.wait());
  EXPECT_EQ(outcome.status().code(), Code::invalid);
  EXPECT_THAT(std::string{outcome.status().text()}, HasSubstr("nothing was asked"));
}

TEST_F(Calls, AreAnsweredLaterByAnyThread) {
  Outcome outcome;
  call(far, bytes_of({1}), outcome);
  ASSERT_TRUE(eventually([&] { return seen.count_kept() == 1; }));
  EXPECT_EQ(outcome.times(), 0);
  seen.kept[0].answer(bytes_of({9}));
  seen.kept[0].answer(bytes_of({10}));  // is too late
  seen.kept.clear();
  ASSERT_TRUE(outcome.wait());
  EXPECT_EQ(outcome.answer(), bytes_of({9}));
}

TEST_F(Calls, FailWhenTheLastHandleEndsWithoutAnAnswer) {
  Outcome kept, ignored;
  call(far, bytes_of({1}), kept);
  call(far, bytes_of({2}), ignored);
  ASSERT_TRUE(ignored.wait());
  EXPECT_EQ(ignored.status().code(), Code::aborted);
  ASSERT_TRUE(eventually([&] { return seen.count_kept() == 1; }));
  EXPECT_EQ(kept.times(), 0);
  seen.kept.clear();
  ASSERT_TRUE(kept.wait());
  EXPECT_EQ(kept.status().code(), Code::aborted);
}

TEST_F(Calls, FailForAnActorThatEndedAndForOneThatTakesNone) {
  caf::anon_send(actor, Quit::value);
  const caf::actor idle = world.there->system.spawn([](caf::event_based_actor* self) -> caf::behavior {
    self->set_default_handler(caf::drop);
    return {[](std::uint64_t) {}};
  });
  const caf::actor far_idle = at_other_end(*world.there, *world.here, idle);
  EXPECT_TRUE(eventually([&] {
    Outcome outcome;
    call(far, bytes_of({3}), outcome);
    return outcome.wait() && outcome.status().code() == Code::aborted;
  }));
  Outcome outcome;
  call(far_idle, bytes_of({3}), outcome);
  ASSERT_TRUE(outcome.wait());
  EXPECT_EQ(outcome.status().code(), Code::aborted);
}

TEST_F(Calls, FailWithTheReasonWhenThePeerIsLost) {
  Outcome before, after;
  call(far, bytes_of({1}), before);
  ASSERT_TRUE(eventually([&] { return seen.count_kept() == 1; }));
  world.here->remote->lost(World::kThere, {Code::peer_lost, "it fell silent"});
  ASSERT_TRUE(before.wait());
  EXPECT_EQ(before.status().code(), Code::peer_lost);
  call(far, bytes_of({3}), after);
  ASSERT_TRUE(after.wait());
  EXPECT_EQ(after.status().text(), "it fell silent");
  EXPECT_EQ(before.times() + after.times(), 2);
  seen.kept.clear();
}

TEST_F(Calls, FailBeyondAsManyAsMayWait) {
  std::vector<std::unique_ptr<Outcome>> outcomes;
  for (std::uint32_t i = 0; i < kMostCalls; ++i) call(far, bytes_of({1}), *outcomes.emplace_back(new Outcome));
  ASSERT_TRUE(eventually([&] { return seen.count_kept() == kMostCalls; }));
  Outcome beyond, later;
  call(far, bytes_of({3}), beyond);
  ASSERT_TRUE(beyond.wait());
  EXPECT_EQ(beyond.status().code(), Code::out_of_memory);
  seen.kept.clear();
  for (const auto& outcome : outcomes) ASSERT_TRUE(outcome->wait());
  call(far, bytes_of({3}), later);
  ASSERT_TRUE(later.wait());
  EXPECT_TRUE(later.status().ok()) << later.status().text();
}

TEST_F(Calls, FailWhenThisProcessEndsItsConnections) {
  Outcome before, after;
  call(far, bytes_of({1}), before);
  ASSERT_TRUE(eventually([&] { return seen.count_kept() == 1; }));
  world.here->stop();
  ASSERT_TRUE(before.wait());
  EXPECT_EQ(before.status().code(), Code::aborted);
  call(far, bytes_of({3}), after);
  ASSERT_TRUE(after.wait());
  EXPECT_EQ(after.status().code(), Code::aborted);
  seen.kept.clear();
}

TEST(MovedActor, TakesItsCallsAsMessages) {
  CallsSeen seen;
  std::atomic<int> moved{0};
  LoopbackWorld world({}, {},
                      {.slow = [&](caf::actor_id, Clock::duration, bool is_moved) { moved += is_moved ? 1 : 0; }});
  const caf::actor actor = world.there->remote->spawn_inline<Turner>(&seen);
  const caf::actor far = at_other_end(*world.there, *world.here, actor);
  const auto call = [&](std::initializer_list<int> question) {
    Outcome outcome;
    world.here->remote->call(world.here->remote->callee(far), bytes_of(question), outcome);
    EXPECT_TRUE(outcome.wait());
    EXPECT_TRUE(outcome.status().ok()) << outcome.status().text();
  };
  for (int i = 0; i < 200 && moved == 0; ++i) call({4});
  ASSERT_EQ(moved, 1);
  const int before = seen.messages;
  call({1, 2});
  EXPECT_EQ(seen.messages, before + 1);
}

class HostileCaller : public ::testing::Test {
 protected:
  wire::Header header(wire::Kind kind, std::uint64_t ticket) const {
    return {.kind = kind,
            .source_peer = static_cast<std::uint16_t>(stranger.value),
            .message_id = ticket,
            .target = actor.id()};
  }
  void expect_lost(const char* why) {
    ASSERT_TRUE(eventually([&] { return world.why_lost(stranger).has_value(); }));
    EXPECT_EQ(world.why_lost(stranger)->code(), Code::corrupt);
    EXPECT_THAT(world.why_lost(stranger)->text(), HasSubstr(why));
    seen.kept.clear();
  }

  CallsSeen seen;
  HostileWorld world{1, {.inline_limit = kLong}};
  const Peer stranger = HostileWorld::stranger(0);
  caf::actor actor = world.victim->remote->spawn_inline<Turner>(&seen);
  const Callee known = world.victim->remote->callee(actor);
};

TEST_F(HostileCaller, IsLostWhenItMakesMoreCallsThanItMay) {
  ASSERT_TRUE(eventually([&] {  // until the actor has begun
    Outcome outcome;
    world.victim->remote->call(known, bytes_of({3}), outcome);
    return outcome.wait() && seen.taken > 0;
  }));
  std::vector<SentFrame> frames(kMostCalls + 1, frame_of(header(wire::Kind::call, 1), bytes_of({1})));
  ASSERT_TRUE(world.arrive(stranger, {frames.begin(), frames.end() - 1}));
  EXPECT_FALSE(world.why_lost(stranger));
  ASSERT_TRUE(world.arrive(stranger, {frames.back()}));
  expect_lost("more calls than it may");
}

TEST_F(HostileCaller, IsLostWhenItAsksMoreThanFits) {
  ASSERT_TRUE(world.arrive(stranger, {frame_of(header(wire::Kind::call, 1), Bytes(kMostCallBytes + 1))}));
  expect_lost("more in a call than fits");
}

TEST_F(HostileCaller, IsLostWhenItAnswersWhatItWasNotAsked) {
  ASSERT_TRUE(world.arrive(stranger, {frame_of(header(wire::Kind::answer, 7), bytes_of({1}))}));
  expect_lost("that nobody made");
}

TEST_F(HostileCaller, FailsACallByAnErrorThatCannotBeRead) {
  Outcome outcome;
  world.victim->remote->call({stranger, 5}, bytes_of({1}), outcome);
  ASSERT_TRUE(on_lane(*world.victim->control, [] {}));
  wire::Header answer = header(wire::Kind::answer, 0);
  answer.flags = wire::kFailed;
  ASSERT_TRUE(world.arrive(stranger, {frame_of(answer, bytes_of({1}))}));
  ASSERT_TRUE(outcome.wait());
  EXPECT_FALSE(outcome.status().ok());
  EXPECT_FALSE(world.why_lost(stranger));
}

}  // namespace
}  // namespace troupe::test
