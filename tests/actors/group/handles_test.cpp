#include <gmock/gmock.h>

#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <future>

#include "actors/caf_error.hpp"
#include "actors/group/promise.hpp"
#include "tests/actors/group/group_world.hpp"
#include "tests/support/child_process.hpp"

// What CAF guarantees for handles, for an actor of the same process and for one of another process.
namespace troupe::test {
namespace {

using ::testing::HasSubstr;
using troupe::testing::eventually;

using Keep = caf::atom_constant<caf::atom("keep")>;        // answered after Release
using Release = caf::atom_constant<caf::atom("release")>;  // (Release, number): 1 when there was something to answer
using Drop = caf::atom_constant<caf::atom("drop")>;        // a promise that is dropped
using Hand = caf::atom_constant<caf::atom("hand")>;        // (Hand, actor): handed on as Who
using Ask = caf::atom_constant<caf::atom("ask")>;          // (Ask, actor): by then
using Await = caf::atom_constant<caf::atom("await")>;      // (Await, actor): by await
using Log = caf::atom_constant<caf::atom("log")>;          // answered with what happened so far
using Tie = caf::atom_constant<caf::atom("tie")>;          // (Tie, actor): links itself
using Mind = caf::atom_constant<caf::atom("mind")>;        // from now on notes exit messages and does not die of them

Calculator::behavior_type calculator(Calculator::pointer self, int) {
  return {[](std::uint64_t x, std::uint64_t y) { return x + y; }, [=](Go) { self->quit(); }};
}

struct PlayerState {
  std::optional<Promise<std::uint64_t>> kept;
  std::string log;
};

/// The number is there because CAF 0.17 reads through a null pointer when it spawns a function that takes nothing but
/// `self`.
caf::behavior player(caf::stateful_actor<PlayerState>* self, int) {
  return {[](Who) { return std::uint64_t{77}; },
          [=](Keep) {
            self->state.kept.emplace(self);
            return self->state.kept->later();
          },
          [=](Release, std::uint64_t number) -> std::uint64_t {
            if (!self->state.kept) return 0;
            self->state.kept->deliver(number);
            return 1;
          },
          [=](Sulk) {
            Promise<std::uint64_t> promise(self);
            promise.fail({Code::device_fault, "it sulks"});
            return promise.later();
          },
          [=](Drop) { return Promise<std::uint64_t>(self).later(); },
          [](Hang) -> caf::result<std::uint64_t> { return caf::delegated<std::uint64_t>{}; },
          [=](Hand, const caf::actor& other) { return self->delegate(other, Who::value); },
          [=](Ask, const caf::actor& other) {
            self->request(other, kLong, Keep::value).then([=](std::uint64_t) { self->state.log += "answer "; });
          },
          [=](Await, const caf::actor& other) {
            self->request(other, kLong, Keep::value).await([=](std::uint64_t) { self->state.log += "answer "; });
          },
          [=](Add, std::uint64_t x) { self->state.log += std::to_string(x) + " "; },
          [=](Log) { return self->state.log; },
          [=](Tie, const caf::actor& other) {
            self->link_to(other);
            return std::uint64_t{1};
          },
          [=](Mind) {
            self->set_exit_handler(
                [=](const caf::exit_msg& exit) { self->state.log += std::string(from_caf(exit.reason).text()) + " "; });
          },
          [=](Go) {
            self->quit(to_caf(Status{Code::device_fault, "it melted"}));
          },
          [=](Calculator calculator, std::uint64_t x, std::uint64_t y) { return self->delegate(calculator, x, y); }};
}

/// `near` is an actor of this process; `far` one of the same process or of another, by parameter.
class Handles : public ::testing::TestWithParam<std::string> {
 protected:
  Handles() : self(world.system(0)) {}
  ~Handles() override {
    for (const caf::actor& actor : spawned) caf::anon_send_exit(actor, caf::exit_reason::kill);
  }
  bool remote() const { return GetParam() == "another_process"; }
  caf::actor_system& there() { return world.system(remote() ? 1 : 0); }
  /// A player here, and its handle there or here.
  caf::actor spawn_far() {
    spawned.push_back(there().spawn(player, 0));
    const std::string name = "p" + std::to_string(spawned.size());
    Group& its = world.group(remote() ? 1 : 0);
    its.publish(name, spawned.back());
    return world.group(0).lookup(world.blocking, its.self(), name, long_enough());
  }
  caf::actor spawn_near() {
    spawned.push_back(world.system(0).spawn(player, 0));
    return spawned.back();
  }
  template <class... Parts>
  Status ask(const caf::actor& whom, Clock::duration within, Parts... parts) {
    Status status{Code::invalid, "nothing came"};
    self->request(whom, within, parts...)
        .receive([&](std::uint64_t x) { status = {}, answer = x; },
                 [&](const caf::error& error) { status = from_caf(error); });
    return status;
  }
  std::string log_of(const caf::actor& whom) {
    std::string log = "nothing came";
    self->request(whom, kLong, Log::value)
        .receive([&](std::string& x) { log = std::move(x); }, [](const caf::error&) {});
    return log;
  }
  bool log_becomes(const caf::actor& whom, const std::string& what) {
    return eventually([&] { return log_of(whom) == what; }, kLong);
  }
  /// Makes `far` fulfil its promise, as soon as it has received the request for one.
  bool release(const caf::actor& far) {
    return eventually([&] { return ask(far, kLong, Release::value, std::uint64_t{5}).ok() && answer == 1; }, kLong);
  }
  Status next_down() {
    Status why{Code::invalid, "nothing came"};
    self->receive([&](const caf::down_msg& down) { why = from_caf(down.reason); }, caf::after(kLong) >> [] {});
    return why;
  }

  GroupWorld world{2};
  caf::scoped_actor self;
  std::vector<caf::actor> spawned;
  std::uint64_t answer = 0;
};

INSTANTIATE_TEST_SUITE_P(Actors, Handles, ::testing::Values("same_process", "another_process"),
                         [](const auto& info) { return info.param; });

TEST_P(Handles, AnswerLaterByAPromise) {
  const caf::actor far = spawn_far();
  auto request = self->request(far, kLong, Keep::value);
  ASSERT_TRUE(ask(far, kLong, Release::value, std::uint64_t{5}).ok());
  request.receive([&](std::uint64_t x) { answer = x; },
                  [](const caf::error& e) { ADD_FAILURE() << caf::to_string(e); });
  EXPECT_EQ(answer, 5u);
}

TEST_P(Handles, KeepCodeAndTextOfAnErrorThatAPromiseAnswers) {
  const Status status = ask(spawn_far(), kLong, Sulk::value);
  EXPECT_EQ(status.code(), Code::device_fault);
  EXPECT_EQ(status.text(), "it sulks");
}

TEST_P(Handles, AnswerADroppedPromiseWithAnError) {
  const Status status = ask(spawn_far(), kLong, Drop::value);
  EXPECT_EQ(status.code(), Code::aborted) << status.text();
  EXPECT_THAT(std::string(status.text()), HasSubstr("dropped its promise"));
}

TEST_P(Handles, AnswerAPromiseThatEndsWithItsActor) {
  const caf::actor far = spawn_far();
  auto request = self->request(far, kLong, Keep::value);
  self->send(far, Go::value);
  Status status;
  request.receive([](std::uint64_t) {}, [&](const caf::error& error) { status = from_caf(error); });
  EXPECT_TRUE(status.code() == Code::aborted || status.code() == Code::peer_lost) << status.text();
}

TEST_P(Handles, TimeOutWhenNobodyAnswers) {
  EXPECT_EQ(ask(spawn_far(), std::chrono::milliseconds(50), Hang::value).code(), Code::timeout);
}

TEST_P(Handles, RefuseMessagesThatTheirActorDoesNotTake) {
  const Status status = ask(spawn_far(), kLong, std::string("what?"));
  EXPECT_EQ(status.code(), Code::unsupported) << status.text();
}

TEST_P(Handles, HandARequestOn) {
  EXPECT_TRUE(ask(spawn_far(), kLong, Hand::value, spawn_near()).ok());
  EXPECT_EQ(answer, 77u);
}

TEST_P(Handles, LetOtherMessagesPassWhileAnAnswerIsAwaitedByThen) {
  const caf::actor far = spawn_far();
  const caf::actor near = spawn_near();
  self->send(near, Ask::value, far);
  self->send(near, Add::value, std::uint64_t{1});
  EXPECT_TRUE(log_becomes(near, "1 "));
  ASSERT_TRUE(release(far));
  EXPECT_TRUE(log_becomes(near, "1 answer "));
}

TEST_P(Handles, HoldOtherMessagesBackWhileAnAnswerIsAwaited) {
  const caf::actor far = spawn_far();
  const caf::actor near = spawn_near();
  self->send(near, Await::value, far);
  self->send(near, Add::value, std::uint64_t{1});
  auto log = self->request(near, kLong, Log::value);
  ASSERT_TRUE(release(far));
  std::string text;
  log.receive([&](std::string& x) { text = std::move(x); }, [&](const caf::error& e) { text = caf::to_string(e); });
  EXPECT_EQ(text, "answer 1 ");
}

TEST_P(Handles, TellMonitorsWhy) {
  const caf::actor far = spawn_far();
  self->monitor(far);
  self->send(far, Go::value);
  const Status why = next_down();
  EXPECT_EQ(why.code(), Code::device_fault);
  EXPECT_EQ(why.text(), "it melted");
}

TEST_P(Handles, TellNoMonitorThatWasTakenBack) {
  const caf::actor far = spawn_far();
  const caf::actor other = spawn_far();
  self->monitor(far);
  self->demonitor(far);
  self->monitor(other);
  self->send(far, Go::value);
  ASSERT_TRUE(eventually([&] { return ask(far, kLong, Who::value).code() == Code::peer_lost; }));
  caf::anon_send_exit(other, caf::exit_reason::kill);
  EXPECT_EQ(next_down().code(), Code::aborted);
}

TEST_P(Handles, EndByAnExitMessage) {
  const caf::actor far = spawn_far();
  self->monitor(far);
  self->send_exit(far, caf::exit_reason::user_shutdown);
  EXPECT_EQ(next_down().code(), Code::aborted);
}

TEST_P(Handles, PassAnEndOnToWhomTheyAreLinked) {
  const caf::actor far = spawn_far();
  const caf::actor near = spawn_near();
  self->monitor(near);
  ASSERT_TRUE(ask(near, kLong, Tie::value, far).ok());
  ASSERT_TRUE(ask(far, kLong, Who::value).ok());
  self->send(far, Go::value);
  const Status why = next_down();
  EXPECT_EQ(why.code(), Code::device_fault);
  EXPECT_EQ(why.text(), "it melted");
}

TEST_P(Handles, EndWithTheOneThatLinkedItself) {
  const caf::actor far = spawn_far();
  const caf::actor near = spawn_near();
  self->monitor(far);
  ASSERT_TRUE(ask(near, kLong, Tie::value, far).ok());
  ASSERT_TRUE(ask(far, kLong, Who::value).ok());
  self->send(near, Go::value);
  EXPECT_EQ(next_down().code(), Code::device_fault);
}

TEST_P(Handles, GiveExitMessagesToWhoMindsThem) {
  const caf::actor far = spawn_far();
  const caf::actor near = spawn_near();
  self->send(near, Mind::value);
  ASSERT_TRUE(ask(near, kLong, Tie::value, far).ok());
  ASSERT_TRUE(ask(far, kLong, Who::value).ok());
  self->send(far, Go::value);
  EXPECT_TRUE(log_becomes(near, "it melted ")) << log_of(near);
}

TEST_P(Handles, CallWhatIsAttachedToThemAtTheirEnd) {
  const caf::actor far = spawn_far();
  std::promise<Status> told;
  far->attach_functor([&](const caf::error& reason) { told.set_value(from_caf(reason)); });
  self->send(far, Go::value);
  auto end = told.get_future();
  ASSERT_EQ(end.wait_for(kLong), std::future_status::ready);
  EXPECT_EQ(end.get().text(), "it melted");
}

TEST_P(Handles, MayBeTyped) {
  const Calculator made = there().spawn(calculator, 0);
  Group& its = world.group(remote() ? 1 : 0);
  its.publish("calculator", made);
  const auto found = world.group(0).lookup<Calculator>(world.blocking, its.self(), "calculator", long_enough());
  self->request(found, kLong, std::uint64_t{20}, std::uint64_t{22})
      .receive([&](std::uint64_t x) { answer = x; }, [](const caf::error& e) { ADD_FAILURE() << caf::to_string(e); });
  EXPECT_EQ(answer, 42u);
  EXPECT_TRUE(ask(spawn_far(), kLong, found, std::uint64_t{1}, std::uint64_t{2}).ok());
  EXPECT_EQ(answer, 3u);
  self->send(found, Go::value);
}

class HandlesOfAKilledProcess : public Handles {};
INSTANTIATE_TEST_SUITE_P(Actors, HandlesOfAKilledProcess, ::testing::Values("another_process"),
                         [](const auto& info) { return info.param; });

TEST_P(HandlesOfAKilledProcess, EndWithEverythingThatHangsOnThem) {
  const caf::actor far = spawn_far();
  const caf::actor linked = spawn_near();
  std::promise<Status> attached;
  far->attach_functor([&](const caf::error& reason) { attached.set_value(from_caf(reason)); });
  ASSERT_TRUE(ask(linked, kLong, Tie::value, far).ok());
  self->monitor(linked);
  auto kept = self->request(far, kLong, Keep::value);
  ASSERT_TRUE(ask(far, kLong, Who::value).ok());
  world.kill(1);
  EXPECT_EQ(next_down().code(), Code::peer_lost);
  Status status;
  kept.receive([](std::uint64_t) {}, [&](const caf::error& error) { status = from_caf(error); });
  EXPECT_EQ(status.code(), Code::peer_lost);
  auto end = attached.get_future();
  ASSERT_EQ(end.wait_for(kLong), std::future_status::ready);
  EXPECT_EQ(end.get().code(), Code::peer_lost);
}

}  // namespace
}  // namespace troupe::test
