#include <caf/event_based_actor.hpp>
#include <caf/response_promise.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <stdexcept>

#include "actors/group/registration.hpp"
#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"

// What actors do by themselves: default handlers, handlers of exceptions and of idle times, what they do on their end;
// and programs of several actors, from CAF's examples.
namespace troupe::test::semantics {
namespace {

using Become = caf::atom_constant<caf::atom("become")>;  // of "changeling", as are the next two
using Unbecome = caf::atom_constant<caf::atom("unbecome")>;
using Which = caf::atom_constant<caf::atom("which")>;
using Push = caf::atom_constant<caf::atom("push")>;
using Pop = caf::atom_constant<caf::atom("pop")>;
using Fail = caf::atom_constant<caf::atom("fail")>;            // answered with an error, also if it is no request
using Tire = caf::atom_constant<caf::atom("tire")>;            // (Tire, actor): two requests that time out, by then
using TireAwait = caf::atom_constant<caf::atom("tireawait")>;  // the same by await
using Trust = caf::atom_constant<caf::atom("trust")>;          // (Trust, actor): asks it to Fail, without a handler
using Mind = caf::atom_constant<caf::atom("mind")>;            // monitors its sender; ends with it
using Serial = caf::atom_constant<caf::atom("serial")>;        // (Serial, actors): asks one after the other
using Take = caf::atom_constant<caf::atom("take")>;
using Put = caf::atom_constant<caf::atom("put")>;
using Dine = caf::atom_constant<caf::atom("dine")>;  // (Dine, left, right, n): answered when it has eaten n times

/// CAF's fixed_stack.
class Stack final : public caf::event_based_actor {
 public:
  Stack(caf::actor_config& config, std::uint64_t size) : caf::event_based_actor(config), size_(size) {
    const auto pop = [this] {
      const std::int32_t last = data_.back();
      data_.pop_back();
      become(data_.empty() ? empty_ : filled_);
      return last;
    };
    full_.assign([](Push, std::int32_t) -> caf::error { return own_error(1, "full"); },
                 [pop](Pop) -> std::int32_t { return pop(); });
    filled_.assign([this](Push, std::int32_t x) { push(x); }, [pop](Pop) -> std::int32_t { return pop(); });
    empty_.assign([this](Push, std::int32_t x) { push(x); }, [](Pop) -> caf::error { return own_error(2, "empty"); });
  }
  caf::behavior make_behavior() override { return empty_; }

 private:
  void push(std::int32_t x) {
    data_.push_back(x);
    become(data_.size() == size_ ? full_ : filled_);
  }
  const std::uint64_t size_;
  std::vector<std::int32_t> data_;
  caf::behavior full_, filled_, empty_;
};

/// Sends back what it gets, and ends.
caf::behavior once(caf::event_based_actor* self) {
  self->set_default_handler(caf::reflect_and_quit);
  return {[] {}};
}

/// Drops everything without a word on its console.
caf::behavior dropper(caf::event_based_actor* self) {
  self->set_default_handler(caf::drop);
  return {[](Echo, std::int32_t x) { return x; }};
}

/// Reports when nothing has come for a while.
caf::behavior idler(caf::event_based_actor* self, caf::actor to) {
  return {[](Echo, std::int32_t x) { return x; }, caf::after(std::chrono::milliseconds(5)) >>
                                                      [=] {
                                                        self->send(to, Note::value, std::string("idle"));
                                                        self->become([](Echo, std::int32_t x) { return x; });
                                                      }};
}

/// Turns its exceptions into errors of its own.
caf::behavior catcher(caf::event_based_actor* self) {
  self->set_exception_handler([](std::exception_ptr& thrown) -> caf::error {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::runtime_error& error) {
      return own_error(31, error.what());
    }
  });
  return {[](Fail) -> std::int32_t { throw std::runtime_error("thrown"); }};
}

/// Tells `to` of its end by itself.
class Farewell final : public caf::event_based_actor {
 public:
  Farewell(caf::actor_config& config, caf::actor to) : caf::event_based_actor(config), to_(std::move(to)) {}
  caf::behavior make_behavior() override {
    return {[this](Quit) { quit(own_error(32, "")); }};
  }
  void on_exit() override {
    send(to_, Note::value, std::string("bye"));
    to_ = {};
  }

 private:
  caf::actor to_;
};

struct AskerState {
  int late = 0;
};

caf::behavior asker(caf::stateful_actor<AskerState>* self) {
  const auto tire = [=](caf::response_promise promise) {
    return [=](const caf::error& why) mutable {
      self->state.late += why == caf::sec::request_timeout;
      if (self->state.late == 2) promise.deliver(self->state.late);
    };
  };
  constexpr auto kSoon = std::chrono::milliseconds(5);
  return {[](Fail) -> caf::result<std::int32_t> { return own_error(33, "on demand"); },
          [=](Tire, const caf::actor& other) -> caf::result<std::int32_t> {
            auto promise = self->make_response_promise();
            for (int i = 0; i < 2; ++i)
              self->request(other, kSoon, Never::value).then([](std::int32_t) {}, tire(promise));
            return caf::delegated<std::int32_t>{};
          },
          [=](TireAwait, const caf::actor& other) -> caf::result<std::int32_t> {
            auto promise = self->make_response_promise();
            self->request(other, kSoon, Never::value).then([](std::int32_t) {}, tire(promise));
            self->request(other, kSoon, Never::value).await([](std::int32_t) {}, tire(promise));
            return caf::delegated<std::int32_t>{};
          },
          [=](Trust, const caf::actor& other) { self->request(other, kLong, Fail::value).then([](std::int32_t) {}); },
          [=](Mind) {
            self->set_down_handler([=](const caf::down_msg& down) { self->quit(down.reason); });
            self->monitor(self->current_sender());
          },
          [=](Serial, const std::vector<caf::actor>& others) -> caf::result<std::int32_t> {
            auto promise = self->make_response_promise();
            auto next = std::make_shared<std::function<void(std::size_t, std::int32_t)>>();
            *next = [=](std::size_t i, std::int32_t sum) mutable {
              if (i == others.size()) {
                promise.deliver(sum);
                *next = nullptr;
                return;
              }
              self->request(others[i], kLong, Echo::value, sum + 1).then([=](std::int32_t x) { (*next)(i + 1, x); });
            };
            (*next)(0, 0);
            return caf::delegated<std::int32_t>{};
          }};
}

// CAF's dining philosophers.

using Chopstick = caf::typed_actor<caf::replies_to<Take>::with<bool>, caf::reacts_to<Put>>;

struct ChopstickState {
  caf::strong_actor_ptr holder;
};

Chopstick::behavior_type chopstick(Chopstick::stateful_pointer<ChopstickState> self) {
  return {[=](Take) {
            auto& holder = self->state.holder;
            if (holder) return false;
            holder = self->current_sender();
            return true;
          },
          [=](Put) { self->state.holder = nullptr; }};
}

struct PhilosopherState {
  Chopstick left, right;
  std::int32_t hunger = 0;
  caf::response_promise done;
};

void eat(caf::stateful_actor<PhilosopherState>* self);

/// Lets others eat and tries again.
void think(caf::stateful_actor<PhilosopherState>* self) { self->send(self, Take::value); }

void eat(caf::stateful_actor<PhilosopherState>* self) {
  self->request(self->state.left, kLong, Take::value).then([=](bool left) {
    if (!left) return think(self);
    self->request(self->state.right, kLong, Take::value).then([=](bool right) {
      auto& s = self->state;
      self->send(s.left, Put::value);
      if (right) {
        self->send(s.right, Put::value);
        if (--s.hunger == 0) return s.done.deliver(caf::unit);
      }
      think(self);
    });
  });
}

caf::behavior philosopher(caf::stateful_actor<PhilosopherState>* self) {
  return {[=](Dine, const Chopstick& left, const Chopstick& right, std::int32_t times) -> caf::result<void> {
            self->state = {left, right, times, self->make_response_promise()};
            eat(self);
            return caf::delegated<void>{};
          },
          [=](Take) { eat(self); }};
}

class Behaviors : public Semantics {
 protected:
  template <class Result>
  static std::string why(const caf::expected<Result>& answer) {
    return answer ? "it was answered" : brief(answer.error());
  }
};
INSTANTIATE_TEST_SUITE_P(Over, Behaviors, ::testing::ValuesIn(Sides::kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Behaviors);

TEST_P(Behaviors, OfAStackChangeAndAnswerWithErrors) {
  const auto stack = far("stack", std::uint64_t{3});
  EXPECT_EQ(why(ask<std::int32_t>(stack, Pop::value)), "semantics 2");
  for (std::int32_t i = 0; i < 3; ++i) EXPECT_EQ(order(stack, Push::value, i), "normal");
  EXPECT_EQ(order(stack, Push::value, std::int32_t{3}), "semantics 1");
  for (std::int32_t i = 2; i >= 0; --i) EXPECT_EQ(ask<std::int32_t>(stack, Pop::value), i);
  EXPECT_EQ(why(ask<std::int32_t>(stack, Pop::value)), "semantics 2");
}

TEST_P(Behaviors, ThatAnswerAndEndSendTheAnswerFirst) {
  for (int i = 0; i < 20; ++i) {
    const auto there = far("once");
    (*self)->monitor(there);
    auto asked = (*self)->request(there, kLong, std::int32_t{i});
    std::int32_t back = -1;
    asked.receive([&](std::int32_t x) { back = x; }, [&](const caf::error& e) { ADD_FAILURE() << brief(e); });
    EXPECT_EQ(back, i);
    EXPECT_EQ(next_down(), "normal");
  }
}

TEST_P(Behaviors, ThatDropRefuseRequests) {
  const auto there = far("dropper");
  EXPECT_EQ(why(ask<std::string>(there, std::string("unknown"))), "system unexpected_message");
  EXPECT_EQ(ask<std::int32_t>(there, Echo::value, std::int32_t{1}), 1);
}

TEST_P(Behaviors, ThatAreIdleReportIt) {
  const auto here = near("mate");
  const auto there = far("idler", here);
  EXPECT_TRUE(log_becomes(here, "idle "));
  EXPECT_EQ(ask<std::int32_t>(there, Echo::value, std::int32_t{1}), 1);
}

TEST_P(Behaviors, TurnExceptionsIntoTheReasonOfTheEnd) {
  const auto there = far("catcher");
  (*self)->monitor(there);
  auto asked = (*self)->request(there, kLong, Fail::value);
  std::string answer;
  asked.receive([&](std::int32_t) { answer = "none"; }, [&](const caf::error& e) { answer = brief(e); });
  EXPECT_EQ(answer, "semantics 31");
  EXPECT_EQ(next_down(), "semantics 31");
}

TEST_P(Behaviors, SendWhatTheySendAtTheEndBeforeTheEndIsTold) {
  const auto here = near("mate");
  const auto there = far("farewell", here);
  EXPECT_EQ(order(here, Watch::value, there), "normal");
  (*self)->send(there, Quit::value);
  EXPECT_TRUE(log_becomes(here, "bye down:semantics 32 ")) << log_of(here);
}

TEST_P(Behaviors, AnswerASendWithAnErrorToo) {
  (*self)->send(far("asker"), Fail::value);
  std::string why = "nothing came";
  (*self)->receive([&](const caf::error& error) { why = brief(error); }, caf::after(kLong) >> [] {});
  EXPECT_EQ(why, "semantics 33");
}

TEST_P(Behaviors, OfRequestersHandleEachTimeoutOnce) {
  EXPECT_EQ(ask<std::int32_t>(near("asker"), Tire::value, far("mate")), 2);
  EXPECT_EQ(ask<std::int32_t>(far("asker"), Tire::value, near("mate")), 2);
  EXPECT_EQ(ask<std::int32_t>(near("asker"), TireAwait::value, far("mate")), 2);
  EXPECT_EQ(ask<std::int32_t>(far("asker"), TireAwait::value, near("mate")), 2);
}

TEST_P(Behaviors, OfRequestersWithoutAHandlerEndWithTheError) {
  const auto here = near("asker");
  (*self)->send(here, Trust::value, far("asker"));
  EXPECT_EQ(end_of(here), "semantics 33");
}

TEST_P(Behaviors, MonitorWhoeverSentTheMessage) {
  const auto there = far("asker");
  {
    const caf::scoped_actor other(system());
    other->request(there, kLong, Mind::value).receive([] {}, [](const caf::error& e) { ADD_FAILURE() << brief(e); });
  }
  EXPECT_EQ(end_of(there), "normal");
}

TEST_P(Behaviors, AskOneAfterTheOther) {
  std::vector<caf::actor> others;
  for (int i = 0; i < 3; ++i) {
    others.push_back(far("mate"));
    others.push_back(near("mate"));
    others.push_back(third("mate"));
  }
  EXPECT_EQ(ask<std::int32_t>(far("asker"), Serial::value, others), 9);
}

TEST_P(Behaviors, AnswerUrgentRequests) {
  std::int32_t answer = 0;
  (*self)
      ->request<caf::message_priority::high>(far("mate"), kLong, Echo::value, std::int32_t{5})
      .receive([&](std::int32_t x) { answer = x; }, [](const caf::error& e) { ADD_FAILURE() << brief(e); });
  EXPECT_EQ(answer, 5);
}

TEST_P(Behaviors, AnswerRequestsWithoutALimitAndNotThoseWithoutTime) {
  std::int32_t answer = 0;
  (*self)
      ->request(far("mate"), caf::infinite, Echo::value, std::int32_t{5})
      .receive([&](std::int32_t x) { answer = x; }, [](const caf::error& e) { ADD_FAILURE() << brief(e); });
  EXPECT_EQ(answer, 5);
  EXPECT_EQ(why(ask_within<std::int32_t>(std::chrono::milliseconds(0), far("mate"), Never::value)),
            "system request_timeout");
}

TEST_P(Behaviors, AnswerWhatCafAsksEveryActor) {
  std::string name;
  const auto there = far("mate");
  (*self)
      ->request(there, kLong, caf::sys_atom::value, caf::get_atom::value, std::string("info"))
      .receive([&](caf::ok_atom, const std::string&, const caf::strong_actor_ptr& who,
                   const std::string& its) { name = who == there ? its : "of another"; },
               [&](const caf::error& error) { name = brief(error); });
  EXPECT_EQ(name, "scheduled_actor");
}

TEST_P(Behaviors, EndByAnExitMessageThatIsARequest) {
  const auto there = far("mate");
  (*self)->monitor(there);
  (*self)
      ->request(there, std::chrono::milliseconds(20), caf::exit_msg{(*self)->address(), own_error(34, "")})
      .receive([] {}, [](caf::error&) {});
  EXPECT_EQ(next_down(), "semantics 34");
}

TEST_P(Behaviors, ReceiveWhatWasSentForLaterByNobody) {
  const auto there = far("mate");
  caf::delayed_anon_send(there, std::chrono::milliseconds(5), Note::value, std::string("later"));
  EXPECT_TRUE(log_becomes(there, "later "));
}

TEST_P(Behaviors, OfPhilosophersWhoShareChopsticksLetAllEat) {
  constexpr std::size_t kSeats = 6;
  std::vector<Chopstick> sticks;
  std::vector<caf::actor> philosophers;
  for (std::size_t i = 0; i < kSeats; ++i) {
    sticks.push_back(i % 2 == 0 ? far<Chopstick>("chopstick") : near<Chopstick>("chopstick"));
    philosophers.push_back(i % 3 == 0 ? far("philosopher") : i % 3 == 1 ? near("philosopher") : third("philosopher"));
  }
  std::size_t full = 0;
  for (std::size_t i = 0; i < kSeats; ++i)
    (*self)->send(philosophers[i], Dine::value, sticks[i], sticks[(i + 1) % kSeats], std::int32_t{20});
  for (std::size_t i = 0; i < kSeats; ++i)
    (*self)->receive([&](caf::unit_t) { ++full; }, [&] { ++full; }, caf::after(kLong) >> [] {});
  EXPECT_EQ(full, kSeats);
}

TEST_P(Behaviors, ThatChangeInAFloodMeetEachMessageInItsTurn) {
  const auto there = far("changeling");
  std::vector<decltype((*self)->request(there, kLong, Which::value))> asked;
  constexpr int kRounds = 500;
  for (int i = 0; i < kRounds; ++i) {
    (*self)->send(there, Become::value);
    asked.push_back((*self)->request(there, kLong, Which::value));
    (*self)->send(there, Unbecome::value);
    asked.push_back((*self)->request(there, kLong, Which::value));
  }
  int right = 0;
  for (std::size_t i = 0; i < asked.size(); ++i)
    asked[i].receive([&](const std::string& which) { right += which == (i % 2 == 0 ? "second" : "first"); },
                     [](const caf::error& e) { ADD_FAILURE() << brief(e); });
  EXPECT_EQ(right, 2 * kRounds);
}

TEST_P(Behaviors, ShowTheirMessagesOnlyWithinTheirProcess) {
  const auto there = far<Chopstick>("chopstick");
  EXPECT_EQ(caf::actor_cast<caf::strong_actor_ptr>(there)->get()->message_types().size(), one_process() ? 2u : 0u);
  EXPECT_EQ(system().message_types(there).size(), 2u);  // of the handle's type
}

}  // namespace

void add_behavior_roles(caf::actor_system_config& config) {
  add_messages(config, MessageName<Chopstick>{"semantics.Chopstick"});
  register_actor<Stack, std::uint64_t>(config, "stack");
  register_actor(config, "once", once);
  register_actor(config, "dropper", dropper);
  register_actor(config, "idler", idler);
  register_actor(config, "catcher", catcher);
  register_actor<Farewell, caf::actor>(config, "farewell");
  register_actor(config, "asker", asker);
  register_actor(config, "chopstick", chopstick);
  register_actor(config, "philosopher", philosopher);
}

}  // namespace troupe::test::semantics
