#include <caf/actor_pool.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <caf/typed_response_promise.hpp>

#include "actors/group/registration.hpp"
#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"

// Typed handles, spawning by type, pools and compositions.
namespace troupe::test::semantics {
namespace {

using Add = caf::atom_constant<caf::atom("add")>;
using Negate = caf::atom_constant<caf::atom("negate")>;
using Use = caf::atom_constant<caf::atom("use")>;  // (Use, calculator, x, y): delegated to it
using End = caf::atom_constant<caf::atom("end")>;
using Publish = caf::atom_constant<caf::atom("publish")>;
using Whose = caf::atom_constant<caf::atom("whose")>;

using Adder = caf::typed_actor<caf::replies_to<Add, std::int32_t, std::int32_t>::with<std::int32_t>>;
using Calculator = Adder::extend<caf::replies_to<Negate, std::int32_t>::with<std::int32_t>, caf::reacts_to<End>>;
using Texter = caf::typed_actor<caf::replies_to<std::string>::with<std::string>>;

Calculator::behavior_type calculator(Calculator::pointer self) {
  return {[](Add, std::int32_t x, std::int32_t y) { return x + y; },
          [=](Negate, std::int32_t x) -> caf::result<std::int32_t> {
            if (x == 0) return own_error(20, "nothing to negate");
            auto promise = self->make_response_promise<std::int32_t>();
            promise.deliver(-x);
            return promise;
          },
          [=](End) { self->quit(own_error(21, "asked to")); }};
}

/// Typed actors that can be composed and pooled.
caf::behavior worker(caf::event_based_actor* self, std::int32_t number) {
  return {[](Add, std::int32_t x) { return x + 1; }, [](std::int32_t x) { return 2 * x; },
          [=](Whose) { return number; },
          [=](Use, const Calculator& other, std::int32_t x, std::int32_t y) {
            return self->delegate(other, Add::value, x, y);
          }};
}

class Typed : public Semantics {
 protected:
  template <class Result>
  static std::string why(const caf::expected<Result>& answer) {
    return answer ? "it was made" : brief(answer.error());
  }
  template <class Handle, class... Args>
  caf::expected<Handle> try_far(const std::string& role, Args&&... args) {
    return group().try_spawn_at<Handle>(blocking, sides().far, role, Deadline::after(kLong),
                                        std::forward<Args>(args)...);
  }
  /// The error that lookup throws.
  template <class Lookup>
  static Status error_of(Lookup lookup) {
    try {
      lookup();
    } catch (const Error& error) {
      return error.status();
    }
    return {};
  }
};
INSTANTIATE_TEST_SUITE_P(Over, Typed, ::testing::ValuesIn(Sides::kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Typed);

TEST_P(Typed, ActorsAnswer) {
  const auto there = far<Calculator>("calculator");
  EXPECT_EQ(ask<std::int32_t>(there, Add::value, 20, 22), 42);
  EXPECT_EQ(ask<std::int32_t>(there, Negate::value, 5), -5);
}

TEST_P(Typed, ActorsAnswerWithErrors) {
  const auto answer = ask<std::int32_t>(far<Calculator>("calculator"), Negate::value, 0);
  EXPECT_EQ(why(answer), "semantics 20");
}

TEST_P(Typed, ActorsHaveMonitorsAndAnswerNothingAfterTheirEnd) {
  const auto there = far<Calculator>("calculator");
  (*self)->monitor(there);
  (*self)->send(there, End::value);
  EXPECT_EQ(next_down(), "semantics 21");
  EXPECT_EQ(why(ask<std::int32_t>(there, Add::value, 1, 2)), "system request_receiver_down");
}

TEST_P(Typed, ActorsEndThoseLinkedToThem) {
  const auto there = far<Calculator>("calculator");
  auto here = system().spawn([there](caf::event_based_actor* actor) -> caf::behavior {
    actor->link_to(there);
    actor->send(there, End::value);
    return {[](std::int32_t) {}};
  });
  EXPECT_EQ(end_of(here), "semantics 21");
}

TEST_P(Typed, HandlesTravelInMessages) {
  EXPECT_EQ(ask<std::int32_t>(far("worker", 1), Use::value, near<Calculator>("calculator"), 1, 2), 3);
  EXPECT_EQ(ask<std::int32_t>(near("worker", 1), Use::value, far<Calculator>("calculator"), 3, 4), 7);
}

TEST_P(Typed, HandlesMayTakeLessThanTheirActor) {
  const auto there = far<Adder>("calculator");
  EXPECT_EQ(ask<std::int32_t>(there, Add::value, 20, 22), 42);
}

TEST_P(Typed, HandlesMustNotTakeMoreThanTheirActor) {
  EXPECT_EQ(why(try_far<Texter>("calculator")), "system unexpected_actor_messaging_interface");
}

TEST_P(Typed, ActorsAreNotHandedOutAsUntyped) {
  EXPECT_EQ(why(try_far<caf::actor>("calculator")), "system unexpected_actor_messaging_interface");
}

TEST_P(Typed, HandlesAreNotOfUntypedActors) {
  EXPECT_EQ(why(try_far<Adder>("worker", 1)), "system unexpected_actor_messaging_interface");
}

TEST_P(Typed, SpawningReportsUnknownTypes) {
  const auto made = try_far<caf::actor>("nobody knows");
  EXPECT_EQ(why(made), "system unknown_type");
}

TEST_P(Typed, SpawningReportsWrongArguments) {
  EXPECT_EQ(why(try_far<caf::actor>("worker", std::string("one"))), "system cannot_spawn_actor_from_arguments");
  EXPECT_EQ(why(try_far<caf::actor>("worker")), "system cannot_spawn_actor_from_arguments");
}

TEST_P(Typed, SpawningThrowsWhereItIsNotAskedForAValue) {
  const auto spawn = [&](const char* role) {
    return error_of([&] { group().spawn_at(blocking, sides().far, role, Deadline::after(kLong)); });
  };
  EXPECT_EQ(spawn("nobody knows").code(), Code::unsupported);
  EXPECT_EQ(spawn("worker").code(), Code::invalid);
  const Status typed = spawn("calculator");
  EXPECT_EQ(typed.code(), Code::unsupported);
  EXPECT_THAT(std::string(typed.text()), ::testing::HasSubstr("do not take the messages of the handle"));
}

TEST_P(Typed, ActorsAreFoundByNameAsWhatTheyAre) {
  const auto here = near<Calculator>("calculator");
  const std::string name = "calculator " + std::to_string(here.id());
  group().publish(name, here);
  const auto found = group().lookup<Adder>(blocking, group().self(), name, Deadline::after(kLong));
  EXPECT_EQ(ask<std::int32_t>(found, Add::value, 1, 1), 2);
  const Status other =
      error_of([&] { group().lookup<Texter>(blocking, group().self(), name, Deadline::after(kLong)); });
  EXPECT_EQ(other.code(), Code::unsupported) << other.text();
  const Status untyped = error_of([&] { group().lookup(blocking, group().self(), name, Deadline::after(kLong)); });
  EXPECT_EQ(untyped.code(), Code::unsupported) << untyped.text();
}

TEST_P(Typed, ActorsOfTheFarSideAreFoundByNameAsWhatTheyAre) {
  const auto far_typed = group().lookup<Calculator>(blocking, sides().far, "the calculator", Deadline::after(kLong));
  EXPECT_EQ(ask<std::int32_t>(far_typed, Add::value, 1, 1), 2);
  const Status untyped =
      error_of([&] { group().lookup(blocking, sides().far, "the calculator", Deadline::after(kLong)); });
  EXPECT_EQ(untyped.code(), Code::unsupported) << untyped.text();
  EXPECT_THAT(std::string(untyped.text()), ::testing::HasSubstr("its actor takes"));
  const Status typed =
      error_of([&] { group().lookup<Calculator>(blocking, sides().far, "the worker", Deadline::after(kLong)); });
  EXPECT_EQ(typed.code(), Code::unsupported) << typed.text();
  EXPECT_THAT(std::string(typed.text()), ::testing::HasSubstr("is not typed"));
}

TEST_P(Typed, PoolsShareWorkAmongActorsOfBothSides) {
  std::vector<caf::actor> workers{far("worker", 1), near("worker", 2), far("worker", 3)};
  caf::scoped_execution_unit context(&system());
  const auto pool = caf::actor_pool::make(&context, caf::actor_pool::round_robin());
  for (const auto& worker : workers) (*self)->send(pool, caf::sys_atom::value, caf::put_atom::value, worker);
  std::multiset<std::int32_t> whose;
  for (int i = 0; i < 6; ++i) {
    const auto one = ask<std::int32_t>(pool, Whose::value);
    ASSERT_TRUE(one) << brief(one.error());
    whose.insert(*one);
  }
  EXPECT_EQ(whose, (std::multiset<std::int32_t>{1, 1, 2, 2, 3, 3}));
  // Without workers first: CAF's pool reads outside its lock why it ends when two workers go down under it at once.
  (*self)->send(pool, caf::sys_atom::value, caf::delete_atom::value);
  (*self)->send_exit(pool, caf::exit_reason::user_shutdown);
  for (const auto& worker : workers) (*self)->send_exit(worker, caf::exit_reason::user_shutdown);
}

TEST_P(Typed, CompositionsAskOneActorAfterTheOther) {
  const auto first = far("worker", 1);
  const auto second = near("worker", 2);
  EXPECT_EQ(ask<std::int32_t>(second * first, Add::value, 20), 42);
  EXPECT_EQ(ask<std::int32_t>(first * second, Add::value, 20), 42);
}

}  // namespace

void add_typed_roles(caf::actor_system_config& config) {
  add_messages(config, MessageName<Adder>{"semantics.Adder"}, MessageName<Calculator>{"semantics.Calculator"},
               MessageName<Texter>{"semantics.Texter"});
  register_actor(config, "calculator", calculator);
  register_actor(config, "worker", worker);
}

void publish_typed_actors(Group& group) {
  group.publish("the calculator", group.system().spawn<caf::hidden>(calculator));
  group.publish("the worker", group.system().spawn<caf::hidden>(worker, 1));
}

}  // namespace troupe::test::semantics
