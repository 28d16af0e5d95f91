#include <caf/attach_stream_sink.hpp>
#include <caf/attach_stream_source.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/response_promise.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/stream.hpp>

#include "actors/group/registration.hpp"
#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"

// The differences between CAF within one process and actors across processes; "What differs from CAF" in
// docs/remote-actors.md gives the reasons.
namespace troupe::test::semantics {

/// A type that must not leave its process.
struct Private {
  std::int32_t value = 0;
};

}  // namespace troupe::test::semantics

TROUPE_LOCAL_MESSAGE(troupe::test::semantics::Private)

namespace troupe::test::semantics {
namespace {

using Keep = caf::atom_constant<caf::atom("keep")>;      // a promise that the actor takes with it
using Stream = caf::atom_constant<caf::atom("stream")>;  // (Stream, actor, n): 0 ... n-1 to it
using Pass = caf::atom_constant<caf::atom("pass")>;      // (Pass, actor): delegates (Wait) to it, and ends
using Wait = caf::atom_constant<caf::atom("wait")>;      // the sum of a stream, when it has ended

/// A type that is not registered.
struct Unregistered {
  std::int32_t value = 0;
};
template <class Inspector>
auto inspect(Inspector& f, Unregistered& x) {
  return f(caf::meta::type_name("semantics.Unregistered"), x.value);
}

struct OddState {
  std::int64_t sum = 0;
  bool ended = false;
  caf::response_promise waiting;
};

caf::behavior odd(caf::stateful_actor<OddState>* self) {
  const auto tell = [self] {
    auto& s = self->state;
    if (s.ended && s.waiting.pending()) s.waiting.deliver(s.sum);
  };
  return {[](const Unregistered& x) { return x.value; },
          [](const Private& x) { return x.value; },
          [](Echo, std::int32_t number) { return number; },
          [=](Keep) -> caf::result<std::int32_t> {
            self->make_response_promise();
            return caf::delegated<std::int32_t>{};
          },
          [=](Stream, const caf::actor& to, std::int32_t n) {
            caf::attach_stream_source(
                self, to, [](std::int32_t& next) { next = 0; },
                [=](std::int32_t& next, caf::downstream<std::int32_t>& out, std::size_t hint) {
                  for (std::size_t i = 0; i < hint && next < n; ++i) out.push(next++);
                },
                [=](const std::int32_t& next) { return next == n; });
          },
          [=](const caf::stream<std::int32_t>& in) {
            return caf::attach_stream_sink(
                self, in, [](caf::unit_t&) {}, [=](caf::unit_t&, std::int32_t number) { self->state.sum += number; },
                [=](caf::unit_t&, const caf::error&) {
                  self->state.ended = true;
                  tell();
                });
          },
          [=](Pass, const caf::actor& to) -> caf::result<std::int64_t> {
            self->delegate(to, Wait::value);
            self->quit();
            return caf::delegated<std::int64_t>{};
          },
          [=](Wait) -> caf::result<std::int64_t> {
            self->state.waiting = self->make_response_promise();
            tell();
            return caf::delegated<std::int64_t>{};
          }};
}

class Differences : public Semantics {
 protected:
  template <class Result>
  static Code code(const caf::expected<Result>& answer) {
    return answer ? Code::ok : from_caf(answer.error()).code();
  }
};
INSTANTIATE_TEST_SUITE_P(Over, Differences, ::testing::ValuesIn(Sides::kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Differences);

TEST_P(Differences, TypesThatAreNotRegisteredDoNotLeaveTheirProcess) {
  const auto answer = ask<std::int32_t>(far("odd"), Unregistered{5});
  EXPECT_EQ(code(answer), one_process() ? Code::ok : Code::unsupported);
}

TEST_P(Differences, TypesThatAreMarkedAsLocalDoNotLeaveTheirProcess) {
  const auto answer = ask<std::int32_t>(far("odd"), Private{5});
  EXPECT_EQ(code(answer), one_process() ? Code::ok : Code::unsupported);
}

TEST_P(Differences, RequestsThatAnActorKeptAreAnsweredWhenItEnds) {
  const auto there = far("odd");
  const auto within = one_process() ? std::chrono::milliseconds(20) : std::chrono::milliseconds(kLong);
  auto kept = (*self)->request(there, within, Keep::value);
  caf::anon_send_exit(there, caf::exit_reason::user_shutdown);
  std::string why;
  kept.receive([](std::int32_t) {}, [&](const caf::error& error) { why = brief(error); });
  EXPECT_EQ(why, one_process() ? "system request_timeout" : "system request_receiver_down");
}

TEST_P(Differences, RequestsThatAnActorPassedOnAreAnsweredWithAnErrorWhenItEnds) {
  const auto passing = far("odd");
  const auto sink = far("odd");
  auto passed = (*self)->request(passing, kLong, Pass::value, sink);
  (*self)->monitor(passing);
  EXPECT_EQ(next_down(), "normal");
  EXPECT_EQ(order(near("odd"), Stream::value, sink, 10), "normal");
  std::string answer;
  passed.receive([&](std::int64_t sum) { answer = std::to_string(sum); },
                 [&](const caf::error& error) { answer = brief(error); });
  EXPECT_EQ(answer, one_process() ? "45" : "system request_receiver_down");
}

TEST_P(Differences, ActorsThatOtherProcessesKnowLiveUntilTheyEnd) {
  caf::actor there = far("odd");
  const caf::actor other = far("odd");
  (*self)->monitor(there);
  const caf::actor_addr address = there.address();
  there = {};
  spawned.clear();
  std::string why = "it lives";
  if (one_process()) {
    why = next_down();
  } else {
    for (int i = 0; i < 100; ++i) EXPECT_EQ(ask<std::int32_t>(other, Echo::value, i), i);
    (*self)->receive([&](const caf::down_msg& down) { why = brief(down.reason); },
                     caf::after(std::chrono::milliseconds(0)) >> [] {});
    const auto again = caf::actor_cast<caf::actor>(address);
    if (again) caf::anon_send_exit(again, caf::exit_reason::kill);
  }
  EXPECT_EQ(why, one_process() ? "exit unreachable" : "it lives");
  caf::anon_send_exit(other, caf::exit_reason::kill);
}

TEST_P(Differences, TheReasonOfAnActorThatEndedBeforeItsHandleArrivedIsUnknown) {
  const auto here = near("mate");
  const auto there = far("mate");
  (*self)->send(here, Quit::value, own_error(50, "asked to"));
  EXPECT_EQ(end_of(here), "semantics 50");
  (*self)->send(there, Tie::value, here);
  EXPECT_EQ(end_of(there), one_process() ? "semantics 50" : "exit unknown");
}

}  // namespace

void add_difference_roles(caf::actor_system_config& config) {
  add_messages(config, MessageName<caf::stream<std::int32_t>>{"semantics.Int32Stream"});
  register_actor(config, "odd", odd);
}

}  // namespace troupe::test::semantics
