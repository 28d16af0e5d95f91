#include <algorithm>
#include <caf/actor_pool.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/function_view.hpp>
#include <caf/scoped_execution_unit.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <caf/typed_response_promise.hpp>

#include "actors/group/registration.hpp"
#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"

// Actors that are made of others: compositions, splices, pools and function views, with parts at all sides, and asked
// from all sides.
namespace troupe::test::semantics {
namespace {

using Ask = caf::atom_constant<caf::atom("ask")>;  // (Ask, actor, number): the sum of the numbers that it answers

using Doubler = caf::typed_actor<caf::replies_to<std::int32_t>::with<std::int32_t>>;

Doubler::behavior_type doubler(Doubler::pointer) {
  return {[](std::int32_t x) { return 2 * x; }};
}

/// Passes its promise on.
Doubler::behavior_type deferring(Doubler::pointer self, Doubler to) {
  return {[=](std::int32_t x) -> caf::typed_response_promise<std::int32_t> {
    auto promise = self->make_response_promise<std::int32_t>();
    return promise.delegate(to, x + 1);
  }};
}

caf::behavior first_stage(caf::event_based_actor*) {
  return {[](double x) { return std::make_tuple(x * 2, x * 4); }};
}

caf::behavior second_stage(caf::event_based_actor*) {
  return {[](double x, double y) { return x * y; }, [](double x) { return 23 * x; },
          [](std::int32_t x, std::int32_t y) { return x + y; },
          [](std::uint64_t place, const std::vector<std::int32_t>& numbers) { return numbers.at(place); }};
}

caf::behavior client(caf::event_based_actor* self) {
  return {[=](Ask, const caf::actor& whom, double x) -> caf::result<double> {
            auto promise = self->make_response_promise();
            self->request(whom, kLong, x)
                .then([=](double a, double b, double c) mutable { promise.deliver(a + b + c); },
                      [=](caf::error& why) mutable { promise.deliver(std::move(why)); });
            return caf::delegated<double>{};
          },
          [=](Ask, const caf::actor& whom, std::int32_t x) -> caf::result<double> {
            auto promise = self->make_response_promise();
            self->request(whom, kLong, static_cast<double>(x))
                .then([=](double a) mutable { promise.deliver(a); },
                      [=](caf::error& why) mutable { promise.deliver(std::move(why)); });
            return caf::delegated<double>{};
          },
          [=](Ask, const caf::actor& whom, const std::vector<std::int32_t>& xy) -> caf::result<std::int32_t> {
            auto promise = self->make_response_promise();
            self->request(whom, kLong, xy.at(0), xy.at(1))
                .then([=](std::int32_t a) mutable { promise.deliver(a); },
                      [=](caf::error& why) mutable { promise.deliver(std::move(why)); });
            return caf::delegated<std::int32_t>{};
          }};
}

class Adapters : public Semantics {
 protected:
  void end(const caf::actor& actor) {
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    EXPECT_EQ(end_of(actor), "exit user_shutdown");
  }
  template <class Policy>
  caf::actor pool_of(const std::vector<caf::actor>& workers, Policy policy) {
    caf::scoped_execution_unit context(&system());
    const auto pool = caf::actor_pool::make(&context, policy);
    for (const auto& worker : workers) (*self)->send(pool, caf::sys_atom::value, caf::put_atom::value, worker);
    return pool;
  }
  /// Without workers first: CAF's pool reads outside its lock why it ends when two workers go down under it at once.
  void end_pool(const caf::actor& pool) {
    (*self)->send(pool, caf::sys_atom::value, caf::delete_atom::value);
    (*self)->send_exit(pool, caf::exit_reason::user_shutdown);
  }
};
INSTANTIATE_TEST_SUITE_P(Over, Adapters, ::testing::ValuesIn(Sides::kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Adapters);

TEST_P(Adapters, SplicesAskActorsOfBothSides) {
  const auto both = caf::splice(far("first stage"), near("second stage"));
  EXPECT_EQ(ask<double>(near("client"), Ask::value, both, 42.0), 84 + 168 + 23 * 42);
}

TEST_P(Adapters, SplicesAreAskedByTheOtherSides) {
  const auto both = caf::splice(near("first stage"), far("second stage"));
  EXPECT_EQ(ask<double>(far("client"), Ask::value, both, 42.0), 84 + 168 + 23 * 42);
  EXPECT_EQ(ask<double>(third("client"), Ask::value, both, 1.0), 2 + 4 + 23);
}

TEST_P(Adapters, SplicesEndWithEitherPart) {
  const auto there = far("second stage");
  const auto both = caf::splice(near("first stage"), there);
  caf::anon_send_exit(there, caf::exit_reason::kill);
  EXPECT_EQ(end_of(both), "exit kill");
}

TEST_P(Adapters, CompositionsAreAskedByTheOtherSides) {
  EXPECT_EQ(ask<double>(far("client"), Ask::value, far("second stage") * near("first stage"), std::int32_t{1}), 8);
  EXPECT_EQ(ask<double>(far("client"), Ask::value, near("second stage") * far("first stage"), std::int32_t{1}), 8);
  EXPECT_EQ(ask<double>(third("client"), Ask::value, far("second stage") * near("first stage"), std::int32_t{1}), 8);
}

TEST_P(Adapters, CompositionsEndWithEitherPart) {
  for (const bool last : {false, true}) {
    const auto first = far("first stage");
    const auto second = far("second stage");
    const auto both = second * first;
    end(last ? second : first);
    EXPECT_EQ(end_of(both), "exit user_shutdown");
  }
}

TEST_P(Adapters, CompositionsWithADeadPartAreDead) {
  const auto first = far("first stage");
  end(first);
  const auto both = near("second stage") * first;
  EXPECT_EQ(end_of(both), "exit user_shutdown");
  EXPECT_EQ(brief(ask<double>(both, 1.0).error()), "system request_receiver_down");
}

TEST_P(Adapters, CompositionsCanBeTypedAndRepeated) {
  const auto doubler = far<Doubler>("doubler");
  const auto eight = doubler * doubler * doubler;
  EXPECT_EQ(ask<std::int32_t>(eight, 1), 8);
  EXPECT_EQ(ask<std::int32_t>(near<Doubler>("doubler") * doubler, 1), 4);
}

TEST_P(Adapters, FunctionViewsCallActorsOfTheOtherSide) {
  auto twice = caf::make_function_view(far<Doubler>("doubler"));
  for (std::int32_t i = 0; i < 10; ++i) EXPECT_EQ(twice(i), 2 * i);
}

TEST_P(Adapters, FunctionViewsOfTheDeadAnswerWithAnError) {
  const auto doubler = far<Doubler>("doubler");
  auto twice = caf::make_function_view(doubler);
  end(caf::actor_cast<caf::actor>(doubler));
  const auto answer = twice(1);
  ASSERT_FALSE(answer);
  EXPECT_THAT(brief(answer.error()), ::testing::AnyOf("system request_receiver_down", "system bad_function_call"));
}

TEST_P(Adapters, PromisesArePassedOnToActorsOfEitherSide) {
  EXPECT_EQ(ask<std::int32_t>(far<Doubler>("deferring", near<Doubler>("doubler")), 1), 4);
  EXPECT_EQ(ask<std::int32_t>(near<Doubler>("deferring", far<Doubler>("doubler")), 2), 6);
  EXPECT_EQ(ask<std::int32_t>(far<Doubler>("deferring", third<Doubler>("doubler")), 3), 8);
}

TEST_P(Adapters, PoolsAreAskedByTheOtherSides) {
  const auto pool =
      pool_of({far("second stage"), near("second stage"), third("second stage")}, caf::actor_pool::round_robin());
  const std::vector<std::int32_t> numbers{20, 22};
  for (const auto& client : {far("client"), near("client"), third("client")}) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(ask<std::int32_t>(client, Ask::value, pool, numbers), 42);
  }
  end_pool(pool);
}

TEST_P(Adapters, PoolsThatChooseAtRandomAnswer) {
  const auto pool = pool_of({far("second stage"), near("second stage")}, caf::actor_pool::random());
  for (std::int32_t i = 0; i < 10; ++i) EXPECT_EQ(ask<std::int32_t>(pool, i, i), 2 * i);
  end_pool(pool);
}

TEST_P(Adapters, PoolsThatBroadcastTellEach) {
  std::vector<caf::actor> workers;
  for (int i = 0; i < 3; ++i) {
    workers.push_back(far("second stage"));
    workers.push_back(third("second stage"));
  }
  const auto pool = pool_of(workers, caf::actor_pool::broadcast());
  (*self)->send(pool, std::int32_t{1}, std::int32_t{2});
  std::int32_t sum = 0;
  std::size_t i = 0;
  (*self)->receive_for(i, workers.size())([&](std::int32_t x) { sum += x; });
  EXPECT_EQ(sum, 18);
  EXPECT_EQ(ask<std::int32_t>(pool, std::int32_t{2}, std::int32_t{3}), 5);  // the first of six
  EXPECT_EQ(ask<std::int32_t>(pool, std::int32_t{3}, std::int32_t{3}), 6);
  end_pool(pool);
}

TEST_P(Adapters, PoolsSplitWorkAndJoinTheAnswers) {
  const auto split = [](std::vector<std::pair<caf::actor, caf::message>>& parts, caf::message& whole) {
    for (std::size_t i = 0; i < parts.size(); ++i)
      parts[i].second = caf::make_message(static_cast<std::uint64_t>(i)) + whole;
  };
  const auto join = [](std::int32_t& sum, caf::message& part) { part.apply([&](std::int32_t x) { sum += x; }); };
  const auto pool = pool_of({far("second stage"), near("second stage"), third("second stage")},
                            caf::actor_pool::split_join<std::int32_t>(join, split));
  EXPECT_EQ(ask<std::int32_t>(pool, std::vector<std::int32_t>{1, 2, 3}), 6);
  EXPECT_EQ(ask<std::int32_t>(pool, std::vector<std::int32_t>{4, 5, 6}), 15);
  end_pool(pool);
}

TEST_P(Adapters, PoolsForgetWorkersThatEnded) {
  const auto there = far("second stage");
  const auto here = near("second stage");
  const auto pool = pool_of({there, here}, caf::actor_pool::round_robin());
  end(there);
  const auto workers = [&] { return ask<std::vector<caf::actor>>(pool, caf::sys_atom::value, caf::get_atom::value); };
  const Deadline deadline = Deadline::after(kLong);
  while (workers()->size() > 1 && !deadline.passed()) {
  }
  EXPECT_EQ(*workers(), std::vector<caf::actor>{here});
  for (std::int32_t i = 0; i < 3; ++i) EXPECT_EQ(ask<std::int32_t>(pool, i, i), 2 * i);
  end_pool(pool);
}

TEST_P(Adapters, PoolsEndTheirWorkers) {
  const auto there = far("second stage");
  const auto pool = pool_of({there}, caf::actor_pool::round_robin());
  (*self)->send_exit(pool, caf::exit_reason::user_shutdown);
  EXPECT_EQ(end_of(pool), "exit user_shutdown");
  EXPECT_EQ(end_of(there), "exit user_shutdown");
}

TEST_P(Adapters, PoolsAreEndedAndWatchedByTheOtherSide) {
  const auto there = far("second stage");
  const auto pool = pool_of({there}, caf::actor_pool::round_robin());
  const auto watching = far("mate");
  EXPECT_EQ(order(watching, Watch::value, pool), "normal");
  EXPECT_EQ(order(watching, Expel::value, pool, own_error(30, "")), "normal");
  EXPECT_TRUE(log_becomes(watching, "down:semantics 30 ")) << log_of(watching);
  EXPECT_EQ(end_of(there), "semantics 30");
}

TEST_P(Adapters, LinkActorsOfTheOtherSide) {
  const auto first = near("first stage");
  const auto both = far("second stage") * first;
  const auto linked = far("mate");
  EXPECT_EQ(order(linked, Tie::value, both), "normal");
  EXPECT_EQ(ask<std::int32_t>(linked, Echo::value, std::int32_t{1}), 1);
  end(first);
  EXPECT_EQ(end_of(linked), "exit user_shutdown");
}

}  // namespace

void add_adapter_roles(caf::actor_system_config& config) {
  add_messages(config, MessageName<Doubler>{"semantics.Doubler"});
  register_actor(config, "first stage", first_stage);
  register_actor(config, "second stage", second_stage);
  register_actor(config, "client", client);
  register_actor(config, "doubler", doubler);
  register_actor(config, "deferring", deferring);
}

}  // namespace troupe::test::semantics
