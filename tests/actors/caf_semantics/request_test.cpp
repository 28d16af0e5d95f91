#include <caf/blocking_actor.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/response_promise.hpp>
#include <caf/stateful_actor.hpp>

#include "actors/group/registration.hpp"
#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"

// Requests: by then, await and receive; promises, errors, time limits, delegates.
namespace troupe::test::semantics {
namespace {

using Keep = caf::atom_constant<caf::atom("keep")>;          // (Keep, number): answered by Give, in reverse order
using Give = caf::atom_constant<caf::atom("give")>;          // (Give, n): answers as soon as n are kept
using Drop = caf::atom_constant<caf::atom("drop")>;          // a promise that nobody keeps
using Refuse = caf::atom_constant<caf::atom("refuse")>;      // an error of one's own category
using Hand = caf::atom_constant<caf::atom("hand")>;          // (Hand, actor, number): delegated as (Echo, number)
using Chain = caf::atom_constant<caf::atom("chain")>;        // (Chain, actors): delegated to each, then answered
using Nest = caf::atom_constant<caf::atom("nest")>;          // (Nest, actor, depth): each asks the other one
using Nothing = caf::atom_constant<caf::atom("nothing")>;    // answered without a value
using Three = caf::atom_constant<caf::atom("three")>;        // answered with three values
using Then = caf::atom_constant<caf::atom("then")>;          // (Then, actor, number): asks it to keep
using Await = caf::atom_constant<caf::atom("await")>;        // (Await, actor, number): the same, by await
using Gather = caf::atom_constant<caf::atom("gather")>;      // (Gather, actor, n): n requests to keep
using Limit = caf::atom_constant<caf::atom("limit")>;        // (Limit, actor): asks for what is never answered
using Become = caf::atom_constant<caf::atom("become")>;      // another behavior
using Unbecome = caf::atom_constant<caf::atom("unbecome")>;  // the one before
using Which = caf::atom_constant<caf::atom("which")>;        // which behavior it is
using Later = caf::atom_constant<caf::atom("later")>;        // (Later, actor): (Note, "later") after a while
using Send = caf::atom_constant<caf::atom("send")>;          // (Send, actor): (Note, ...) to itself by that handle
using Twice = caf::atom_constant<caf::atom("twice")>;        // a promise that is kept twice

struct ServantState {
  std::vector<std::pair<std::int32_t, caf::response_promise>> kept;
  std::int32_t wanted = -1;
  caf::response_promise given;
  std::string log;
};

void give(caf::stateful_actor<ServantState>* self) {
  auto& s = self->state;
  if (s.wanted < 0 || static_cast<std::int32_t>(s.kept.size()) < s.wanted) return;
  for (auto each = s.kept.rbegin(); each != s.kept.rend(); ++each) each->second.deliver(each->first);
  s.kept.clear();
  s.wanted = -1;
  s.given.deliver(caf::unit);
}

caf::behavior servant(caf::stateful_actor<ServantState>* self) {
  return {
      [](Echo, std::int32_t number) { return number; },
      [=](Keep, std::int32_t number) -> caf::result<std::int32_t> {
        self->state.kept.emplace_back(number, self->make_response_promise());
        give(self);
        return caf::delegated<std::int32_t>{};
      },
      [=](Give, std::int32_t n) -> caf::result<void> {
        self->state.wanted = n;
        self->state.given = self->make_response_promise();
        give(self);
        return caf::delegated<void>{};
      },
      [=](Drop) -> caf::result<std::int32_t> {
        self->make_response_promise();
        return caf::delegated<std::int32_t>{};
      },
      [=](Twice) -> caf::result<std::int32_t> {
        auto promise = self->make_response_promise();
        promise.deliver(std::int32_t{1});
        if (!promise.pending()) self->state.log += "kept ";
        return caf::delegated<std::int32_t>{};
      },
      [](Refuse) -> caf::result<std::int32_t> { return own_error(7, "not today"); },
      [=](Hand, const caf::actor& other, std::int32_t number) -> caf::result<std::int32_t> {
        self->delegate(other, Echo::value, number);
        return caf::delegated<std::int32_t>{};
      },
      [=](Chain, std::vector<caf::actor> rest) -> caf::result<std::string> {
        if (rest.empty()) return std::string("the end");
        const caf::actor next = rest.back();
        rest.pop_back();
        self->delegate(next, Chain::value, std::move(rest));
        return caf::delegated<std::string>{};
      },
      [=](Nest, const caf::actor& other, std::int32_t depth) -> caf::result<std::int32_t> {
        if (depth == 0) return 0;
        auto promise = self->make_response_promise();
        self->request(other, kLong, Nest::value, caf::actor(self), depth - 1)
            .then([=](std::int32_t below) mutable { promise.deliver(below + 1); },
                  [=](caf::error& why) mutable { promise.deliver(std::move(why)); });
        return caf::delegated<std::int32_t>{};
      },
      [](Nothing) {},
      [](Three) { return std::make_tuple(std::int32_t{1}, std::string("two"), 3.0); },
      [=](Then, const caf::actor& other, std::int32_t number) {
        self->request(other, kLong, Keep::value, number).then([=](std::int32_t kept) {
          self->state.log += "answer:" + std::to_string(kept) + " ";
        });
      },
      [=](Await, const caf::actor& other, std::int32_t number) {
        self->request(other, kLong, Keep::value, number).await([=](std::int32_t kept) {
          self->state.log += "answer:" + std::to_string(kept) + " ";
        });
      },
      [=](Gather, const caf::actor& other, std::int32_t n) -> caf::result<std::int32_t> {
        auto promise = self->make_response_promise();
        auto right = std::make_shared<std::int32_t>(0);
        auto left = std::make_shared<std::int32_t>(n);
        for (std::int32_t i = 0; i < n; ++i) {
          self->request(other, kLong, Keep::value, i).then([=](std::int32_t kept) mutable {
            *right += kept == i;
            if (--*left == 0) promise.deliver(*right);
          });
        }
        return caf::delegated<std::int32_t>{};
      },
      [=](Limit, const caf::actor& other) -> caf::result<std::int32_t> {
        auto promise = self->make_response_promise();
        self->request(other, std::chrono::milliseconds(20), Never::value)
            .then([](std::int32_t) {}, [=](caf::error& why) mutable { promise.deliver(std::move(why)); });
        return caf::delegated<std::int32_t>{};
      },
      [=](Note, const std::string& what) { self->state.log += what + " "; },
      [=](Later, const caf::actor& other) {
        self->delayed_send(other, std::chrono::milliseconds(20), Note::value, std::string("later"));
      },
      [=](Send, const caf::actor& other) { self->send(other, Note::value, std::string("itself")); },
      [=](Log) { return self->state.log; },
  };
}

/// Has two behaviors; messages that one of them does not accept wait for the other one.
caf::behavior changeling(caf::event_based_actor* self) {
  self->set_default_handler(caf::skip);
  return {[=](Become) {
            self->become(
                caf::keep_behavior, [=](Unbecome) { self->unbecome(); }, [](Which) { return std::string("second"); },
                [](Echo, std::int32_t number) { return number; });
          },
          [](Which) { return std::string("first"); }};
}

/// Has a thread of its own and receives by hand: the sum of n numbers.
class Adder final : public caf::blocking_actor {
 public:
  Adder(caf::actor_config& config, caf::actor to, std::int32_t n) : blocking_actor(config), to_(std::move(to)), n_(n) {}
  void act() override {
    std::int32_t sum = 0;
    std::int32_t i = 0;
    receive_for(i, n_)([&](std::int32_t number) { sum += number; });
    request(to_, kLong, Echo::value, sum)
        .receive([&](std::int32_t back) { sum = back; }, [&](caf::error&) { sum = -1; });
    send(to_, Note::value, std::to_string(sum));
  }

 private:
  const caf::actor to_;
  const std::int32_t n_;
};

caf::behavior unwilling(caf::event_based_actor*) {
  return {[](Which) { return std::string("unwilling"); }};
}

class Requests : public Semantics {
 protected:
  template <class Result>
  static std::string why(const caf::expected<Result>& answer) {
    return answer ? "it was answered" : brief(answer.error());
  }
  void end(const caf::actor& actor) {
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    EXPECT_EQ(end_of(actor), "exit user_shutdown");
  }
};
INSTANTIATE_TEST_SUITE_P(Over, Requests, ::testing::ValuesIn(Sides::kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Requests);

TEST_P(Requests, AreAnsweredByReceive) { EXPECT_EQ(ask<std::int32_t>(far("servant"), Echo::value, 42), 42); }

TEST_P(Requests, AreAnsweredWithoutAValue) { EXPECT_EQ(order(far("servant"), Nothing::value), "normal"); }

TEST_P(Requests, AreAnsweredWithSeveralValues) {
  std::string all;
  (*self)
      ->request(far("servant"), kLong, Three::value)
      .receive([&](std::int32_t one, const std::string& two,
                   double three) { all = std::to_string(one) + two + std::to_string(static_cast<int>(three)); },
               [&](const caf::error& why) { all = brief(why); });
  EXPECT_EQ(all, "1two3");
}

TEST_P(Requests, ByThenLetOtherMessagesPass) {
  const auto other = far("servant");
  const auto asking = near("servant");
  (*self)->send(asking, Then::value, other, 5);
  (*self)->send(asking, Note::value, std::string("passed"));
  EXPECT_TRUE(log_becomes(asking, "passed "));
  EXPECT_EQ(order(other, Give::value, 1), "normal");
  EXPECT_TRUE(log_becomes(asking, "passed answer:5 "));
}

TEST_P(Requests, ByAwaitHoldOtherMessagesBack) {
  const auto other = far("servant");
  const auto asking = near("servant");
  (*self)->send(asking, Await::value, other, 5);
  (*self)->send(asking, Note::value, std::string("held"));
  EXPECT_EQ(order(other, Give::value, 1), "normal");
  EXPECT_EQ(log_of(asking), "answer:5 held ");
}

TEST_P(Requests, ByAwaitAreHandledLastFirst) {
  const auto other = far("servant");
  const auto asking = near("servant");
  (*self)->send(asking, Await::value, other, 1);
  EXPECT_EQ(order(other, Give::value, 1), "normal");
  EXPECT_EQ(log_of(asking), "answer:1 ");
  (*self)->send(asking, Await::value, other, 2);
  EXPECT_EQ(order(other, Give::value, 1), "normal");
  EXPECT_EQ(log_of(asking), "answer:1 answer:2 ");
}

TEST_P(Requests, FindTheirAnswersInWhateverOrderTheyCome) {
  const auto other = far("servant");
  auto all = (*self)->request(near("servant"), kLong, Gather::value, other, 100);
  EXPECT_EQ(order(other, Give::value, 100), "normal");
  std::int32_t right = 0;
  all.receive([&](std::int32_t n) { right = n; }, [](const caf::error& e) { ADD_FAILURE() << brief(e); });
  EXPECT_EQ(right, 100);
}

TEST_P(Requests, MayAskTheirSenderAgain) {
  EXPECT_EQ(ask<std::int32_t>(far("servant"), Nest::value, near("servant"), 30), 30);
}

TEST_P(Requests, TimeOutWhenNobodyAnswers) {
  EXPECT_EQ(why(ask_within<std::int32_t>(std::chrono::milliseconds(20), far("mate"), Never::value)),
            "system request_timeout");
}

TEST_P(Requests, TimeOutInTheActorThatAsked) {
  EXPECT_EQ(why(ask<std::int32_t>(near("servant"), Limit::value, far("mate"))), "system request_timeout");
  EXPECT_EQ(why(ask<std::int32_t>(far("servant"), Limit::value, near("mate"))), "system request_timeout");
}

TEST_P(Requests, GiveNoAnswerToWhoHasGivenUp) {
  const auto other = far("servant");
  EXPECT_EQ(why(ask_within<std::int32_t>(std::chrono::milliseconds(20), other, Keep::value, 5)),
            "system request_timeout");
  EXPECT_EQ(order(other, Give::value, 1), "normal");
  EXPECT_EQ(ask<std::int32_t>(other, Echo::value, 6), 6);
  bool late = false;
  (*self)->receive([&](std::int32_t) { late = true; }, caf::after(std::chrono::milliseconds(0)) >> [] {});
  EXPECT_FALSE(late);
}

TEST_P(Requests, MayBeAnsweredLaterByAPromise) {
  const auto other = far("servant");
  auto kept = (*self)->request(other, kLong, Keep::value, 5);
  EXPECT_EQ(order(other, Give::value, 1), "normal");
  std::int32_t answer = 0;
  kept.receive([&](std::int32_t x) { answer = x; }, [](const caf::error& e) { ADD_FAILURE() << brief(e); });
  EXPECT_EQ(answer, 5);
}

TEST_P(Requests, AreAnsweredOnceByAPromise) {
  const auto other = far("servant");
  EXPECT_EQ(ask<std::int32_t>(other, Twice::value), 1);
  EXPECT_EQ(log_of(other), "kept ");
}

TEST_P(Requests, WhosePromiseIsDroppedTimeOut) {
  EXPECT_EQ(why(ask_within<std::int32_t>(std::chrono::milliseconds(20), far("servant"), Drop::value)),
            "system request_timeout");
}

TEST_P(Requests, AreAnsweredWithErrorsOfAnyCategory) {
  const auto answer = ask<std::int32_t>(far("servant"), Refuse::value);
  ASSERT_FALSE(answer);
  EXPECT_EQ(brief(answer.error()), "semantics 7");
  ASSERT_TRUE(answer.error().context().match_elements<std::string>());
  EXPECT_EQ(answer.error().context().get_as<std::string>(0), "not today");
}

TEST_P(Requests, ThatTheirActorDoesNotTakeAreRefused) {
  EXPECT_EQ(why(ask<std::int32_t>(far("unwilling"), Echo::value, 5)), "system unexpected_message");
}

TEST_P(Requests, AnsweredWithSomethingElseAreErrors) {
  EXPECT_EQ(why(ask<std::string>(far("servant"), Echo::value, 5)), "system unexpected_response");
}

TEST_P(Requests, ThatEndTheirActorByAnExceptionAreErrors) {
  const auto answer = ask<std::int32_t>(far("mate"), Throw::value);
  EXPECT_EQ(why(answer), one_process() ? why(answer) : why(ask<std::int32_t>(near("mate"), Throw::value)));
}

TEST_P(Requests, ToSkippingActorsWaitForAnotherBehavior) {
  const auto other = far("changeling");
  auto skipped = (*self)->request(other, kLong, Echo::value, 5);
  EXPECT_EQ(ask<std::string>(other, Which::value), "first");
  (*self)->send(other, Become::value);
  std::int32_t answer = 0;
  skipped.receive([&](std::int32_t x) { answer = x; }, [](const caf::error& e) { ADD_FAILURE() << brief(e); });
  EXPECT_EQ(answer, 5);
}

TEST_P(Requests, MeetTheBehaviorThatTheMessageBeforeLeft) {
  const auto other = far("changeling");
  EXPECT_EQ(ask<std::string>(other, Which::value), "first");
  (*self)->send(other, Become::value);
  EXPECT_EQ(ask<std::string>(other, Which::value), "second");
  (*self)->send(other, Unbecome::value);
  EXPECT_EQ(ask<std::string>(other, Which::value), "first");
}

TEST_P(Requests, MayBeDelegated) {
  EXPECT_EQ(ask<std::int32_t>(far("servant"), Hand::value, near("servant"), 5), 5);
  EXPECT_EQ(ask<std::int32_t>(near("servant"), Hand::value, far("servant"), 6), 6);
  EXPECT_EQ(ask<std::int32_t>(far("servant"), Hand::value, far("servant"), 7), 7);
}

TEST_P(Requests, DelegatedToWhoDoesNotTakeThemAreRefused) {
  EXPECT_EQ(why(ask<std::int32_t>(far("servant"), Hand::value, near("unwilling"), 5)), "system unexpected_message");
}

TEST_P(Requests, DelegatedToTheDeadAreErrors) {
  const auto dead = near("mate");
  end(dead);
  EXPECT_EQ(why(ask<std::int32_t>(far("servant"), Hand::value, dead, 5)), "system request_receiver_down");
}

TEST_P(Requests, AreDelegatedAlongAChainOverBothSides) {
  std::vector<caf::actor> chain;
  for (int i = 0; i < 5; ++i) {
    chain.push_back(near("servant"));
    chain.push_back(far("servant"));
  }
  EXPECT_EQ(ask<std::string>(far("servant"), Chain::value, chain), "the end");
}

TEST_P(Requests, ToTheDeadAreErrors) {
  const auto dead = far("servant");
  end(dead);
  EXPECT_EQ(why(ask<std::int32_t>(dead, Echo::value, 5)), "system request_receiver_down");
}

TEST_P(Requests, InTheMailboxOfWhoEndsAreErrors) {
  const auto other = far("changeling");
  auto skipped = (*self)->request(other, kLong, Echo::value, 5);
  EXPECT_EQ(ask<std::string>(other, Which::value), "first");
  caf::anon_send_exit(other, caf::exit_reason::user_shutdown);
  std::string why;
  skipped.receive([](std::int32_t) {}, [&](const caf::error& e) { why = brief(e); });
  EXPECT_EQ(why, "system request_receiver_down");
}

TEST_P(Requests, AreNotDisturbedBySendsToTheDead) {
  const auto dead = far("servant");
  const auto other = far("servant");
  end(dead);
  for (int i = 0; i < 100; ++i) (*self)->send(dead, Note::value, std::string("nobody"));
  EXPECT_EQ(ask<std::int32_t>(other, Echo::value, 5), 5);
}

TEST_P(Requests, DelayedSendsArrive) {
  const auto there = far("servant");
  const auto here = near("servant");
  (*self)->send(here, Later::value, there);
  (*self)->send(there, Later::value, here);
  EXPECT_TRUE(log_becomes(there, "later "));
  EXPECT_TRUE(log_becomes(here, "later "));
}

TEST_P(Requests, AnActorReachesItselfByTheHandleThatCameBack) {
  const auto there = far("servant");
  (*self)->send(there, Send::value, there);
  EXPECT_TRUE(log_becomes(there, "itself "));
}

TEST_P(Requests, ReachActorsThatReceiveByHand) {
  const auto here = near("servant");
  const auto sums = far("adder", here, std::int32_t{10});
  for (std::int32_t i = 0; i < 10; ++i) (*self)->send(sums, i);
  EXPECT_TRUE(log_becomes(here, "45 "));
}

}  // namespace

void add_request_roles(caf::actor_system_config& config) {
  register_actor(config, "servant", servant);
  register_actor(config, "changeling", changeling);
  register_actor<Adder, caf::actor, std::int32_t>(config, "adder");
  register_actor(config, "unwilling", unwilling);
}

}  // namespace troupe::test::semantics
