#include <caf/actor_registry.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/response_promise.hpp>
#include <caf/stateful_actor.hpp>
#include <thread>

#include "actors/group/registration.hpp"
#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"

// What one can do with a handle besides sending: casts, CAF's registry, weak handles, handles that actors keep.
namespace troupe::test::semantics {
namespace {

using Hold = caf::atom_constant<caf::atom("hold")>;    // (Hold, actor): keeps the handle in its state
using Defer = caf::atom_constant<caf::atom("defer")>;  // a promise that the actor answers when it ends

/// Tells `witness` when it is destroyed.
struct Tomb {
  caf::actor witness;
  Tomb() = default;
  Tomb(const Tomb&) = delete;
  Tomb& operator=(const Tomb&) = delete;
  ~Tomb() {
    if (witness) caf::anon_send(witness, Note::value, std::string("freed"));
  }
};

struct HolderState {
  std::vector<caf::actor> held;
  Tomb tomb;
};

caf::behavior holder(caf::stateful_actor<HolderState>* self, caf::actor witness) {
  self->state.tomb.witness = witness;
  return {[=](Hold, const caf::actor& other) { self->state.held.push_back(other); },
          [](Echo, std::int32_t x) { return x; }, [=](Quit) { self->quit(); }};
}

/// Answers on its end.
class LastAnswer final : public caf::event_based_actor {
 public:
  using caf::event_based_actor::event_based_actor;
  caf::behavior make_behavior() override {
    return {[this](Defer) -> caf::result<std::int32_t> {
              promise_ = make_response_promise();
              return caf::delegated<std::int32_t>{};
            },
            [](Echo, std::int32_t x) { return x; }};
  }
  void on_exit() override {
    if (promise_.pending()) promise_.deliver(std::int32_t{5});
    promise_ = {};  // it keeps this actor alive
  }

 private:
  caf::response_promise promise_;
};

class Handles : public Semantics {};
INSTANTIATE_TEST_SUITE_P(Over, Handles, ::testing::ValuesIn(Sides::kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Handles);

TEST_P(Handles, OfEveryKindAreOneActor) {
  const auto there = far("mate");
  const auto strong = caf::actor_cast<caf::strong_actor_ptr>(there);
  const auto weak = caf::actor_cast<caf::weak_actor_ptr>(there);
  const caf::actor_addr address = there.address();
  EXPECT_EQ(caf::actor_cast<caf::actor>(strong), there);
  EXPECT_EQ(caf::actor_cast<caf::actor>(weak), there);
  EXPECT_EQ(caf::actor_cast<caf::actor>(address), there);
  EXPECT_EQ(caf::actor_cast<caf::strong_actor_ptr>(address), strong);
  EXPECT_EQ(strong->node() == system().node(), one_process());
  EXPECT_NE(there, far("mate"));
  EXPECT_EQ(std::hash<caf::actor>{}(there), std::hash<caf::actor>{}(caf::actor_cast<caf::actor>(weak)));
}

TEST_P(Handles, AreFoundInCafsRegistry) {
  const auto there = far("mate");
  system().registry().put(caf::atom("semantics"), there);
  const auto found = system().registry().get<caf::actor>(caf::atom("semantics"));
  system().registry().erase(caf::atom("semantics"));
  EXPECT_EQ(found, there);
  EXPECT_EQ(ask<std::int32_t>(found, Echo::value, std::int32_t{1}), 1);
}

TEST_P(Handles, ThatAreWeakReachTheirActor) {
  const auto there = far("mate");
  const auto weak = caf::actor_cast<caf::weak_actor_ptr>(there);
  caf::anon_send(caf::actor_cast<caf::actor>(weak), Note::value, std::string("weak"));
  caf::anon_send<caf::message_priority::high>(caf::actor_cast<caf::actor>(there.address()), Note::value,
                                              std::string("address"));
  const Deadline deadline = Deadline::after(kLong);
  while (log_of(there).size() < 13 && !deadline.passed()) {
  }
  EXPECT_THAT(log_of(there), ::testing::AnyOf("weak address ", "address weak "));
}

TEST_P(Handles, InACycleAreReleasedWhenTheirActorsEnd) {
  const auto witness = near("mate");
  const auto here = near("holder", witness);
  const auto there = far("holder", witness);
  const auto beyond = third("holder", witness);
  EXPECT_EQ(order(here, Hold::value, there), "normal");
  EXPECT_EQ(order(there, Hold::value, beyond), "normal");
  EXPECT_EQ(order(beyond, Hold::value, here), "normal");
  EXPECT_EQ(order(there, Hold::value, there), "normal");
  for (const auto& one : {here, there, beyond}) (*self)->send(one, Quit::value);
  EXPECT_TRUE(log_becomes(witness, "freed freed freed ")) << log_of(witness);
}

TEST_P(Handles, OfRequestersThatEndedGetNoAnswer) {
  const auto there = far("last answer");
  {
    const caf::scoped_actor other(system());
    other->request(there, std::chrono::milliseconds(1), Defer::value).receive([](std::int32_t) {}, [](caf::error&) {});
  }
  EXPECT_EQ(ask<std::int32_t>(there, Echo::value, std::int32_t{1}), 1);
  caf::anon_send_exit(there, caf::exit_reason::user_shutdown);
  EXPECT_EQ(end_of(there), "exit user_shutdown");
}

TEST_P(Handles, WhoseActorAnswersOnItsEndGetTheAnswer) {
  const auto there = far("last answer");
  auto asked = (*self)->request(there, kLong, Defer::value);
  EXPECT_EQ(ask<std::int32_t>(there, Echo::value, std::int32_t{1}), 1);
  caf::anon_send_exit(there, caf::exit_reason::user_shutdown);
  std::string answer;
  asked.receive([&](std::int32_t x) { answer = std::to_string(x); }, [&](caf::error& e) { answer = brief(e); });
  EXPECT_EQ(answer, "5");
}

class HandlesOfWhoLeaves : public MortalSemantics {};
INSTANTIATE_TEST_SUITE_P(Over, HandlesOfWhoLeaves, ::testing::ValuesIn(Sides::mortal_kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(HandlesOfWhoLeaves);

TEST_P(HandlesOfWhoLeaves, GetTheAnswersThatItsActorsGiveAtTheirEnd) {
  const auto deferring = far("last answer");
  const auto keeping = far("mate");
  const auto linked = third("mate");
  EXPECT_EQ(order(linked, Watch::value, keeping), "normal");
  EXPECT_EQ(order(linked, Tell::value, keeping, std::string("watched")), "normal");
  EXPECT_TRUE(log_becomes(keeping, "watched "));  // so its process knows who watches it
  auto answered = (*self)->request(deferring, kLong, Defer::value);
  auto kept = (*self)->request(keeping, kLong, Never::value);
  EXPECT_EQ(ask<std::int32_t>(deferring, Echo::value, std::int32_t{1}), 1);
  EXPECT_TRUE(lives(keeping));
  sides().leave_far();
  std::string answer, error;
  answered.receive([&](std::int32_t x) { answer = std::to_string(x); }, [&](caf::error& e) { answer = brief(e); });
  kept.receive([](std::int32_t) {}, [&](caf::error& e) { error = brief(e); });
  EXPECT_EQ(answer, "5");
  EXPECT_EQ(error, "system request_receiver_down");
  EXPECT_TRUE(log_becomes(linked, "down:exit user_shutdown ")) << log_of(linked);
  EXPECT_EQ(ask<std::int32_t>(linked, Echo::value, std::int32_t{2}), 2);
}

}  // namespace

void add_handle_roles(caf::actor_system_config& config) {
  register_actor(config, "holder", holder);
  register_actor<LastAnswer>(config, "last answer");
}

}  // namespace troupe::test::semantics
