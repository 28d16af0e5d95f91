#include <caf/attach_continuous_stream_stage.hpp>
#include <caf/attach_stream_sink.hpp>
#include <caf/attach_stream_source.hpp>
#include <caf/attach_stream_stage.hpp>
#include <caf/broadcast_downstream_manager.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/group.hpp>
#include <caf/response_promise.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/stream.hpp>

#include "actors/group/registration.hpp"
#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"

// CAF's streams and local groups.
namespace troupe::test::semantics {
namespace {

using Join = caf::atom_constant<caf::atom("join")>;      // (Join, group): then (Note, text) is logged
using Part = caf::atom_constant<caf::atom("part")>;      // (Part, group): leaves it
using Shout = caf::atom_constant<caf::atom("shout")>;    // (Shout, group, text): (Note, text) to all of it
using From = caf::atom_constant<caf::atom("from")>;      // (From, n): 0 ... n-1, as the source of a composition
using Stream = caf::atom_constant<caf::atom("stream")>;  // (Stream, actor, n): 0 ... n-1 to it
using Wait = caf::atom_constant<caf::atom("wait")>;      // the sum of a stream and how it ended, when it has
using Ready = caf::atom_constant<caf::atom("ready")>;    // from now on takes a stream

struct StreamerState {
  std::string log;
  std::int64_t sum = 0;
  std::string end;
  caf::response_promise waiting;
};
using Streamer = caf::stateful_actor<StreamerState>;

void end_stream(Streamer* self, const caf::error& why) {
  auto& s = self->state;
  s.end = brief(why);
  if (s.waiting.pending()) s.waiting.deliver(s.sum, s.end);
}

template <class... Next>
auto begin_stream(Streamer* self, std::int32_t n, const Next&... next) {
  return caf::attach_stream_source(
      self, next..., [](std::int32_t& i) { i = 0; },
      [=](std::int32_t& i, caf::downstream<std::int32_t>& out, std::size_t hint) {
        for (std::size_t sent = 0; sent < hint && i != n; ++sent) out.push(i++);
      },
      [=](const std::int32_t& i) { return i == n; },
      [=](std::int32_t&, const caf::error& why) { end_stream(self, why); });
}

auto end_of_stream(Streamer* self, const caf::stream<std::int32_t>& in) {
  return caf::attach_stream_sink(
      self, in, [](caf::unit_t&) {}, [=](caf::unit_t&, std::int32_t number) { self->state.sum += number; },
      [=](caf::unit_t&, const caf::error& why) { end_stream(self, why); });
}

caf::behavior streamer(Streamer* self) {
  self->set_default_handler(caf::skip);
  return {[=](From, std::int32_t n) -> caf::result<caf::stream<std::int32_t>> { return begin_stream(self, n); },
          [=](Stream, const caf::actor& to, std::int32_t n) { begin_stream(self, n, to); },
          [=](const caf::stream<std::int32_t>& in) { return end_of_stream(self, in); },
          [=](Wait) -> caf::result<std::int64_t, std::string> {
            auto& s = self->state;
            s.waiting = self->make_response_promise();
            if (!s.end.empty()) s.waiting.deliver(s.sum, s.end);
            return caf::delegated<std::int64_t, std::string>{};
          },
          [](Log) { return std::string(); }};
}

/// A stage that doubles numbers.
caf::behavior twofold(caf::event_based_actor* self) {
  return {[=](const caf::stream<std::int32_t>& in) {
    return caf::attach_stream_stage(
        self, in, [](caf::unit_t&) {},
        [](caf::unit_t&, caf::downstream<std::int32_t>& out, std::int32_t x) { out.push(2 * x); },
        [](caf::unit_t&, const caf::error&) {});
  }};
}

struct ForkState {
  caf::stream_stage_ptr<std::int32_t, caf::broadcast_downstream_manager<std::int32_t>> stage;
};

/// A stage that goes on without sources, and to which sinks are added while it runs.
caf::behavior fork(caf::stateful_actor<ForkState>* self) {
  self->state.stage = caf::attach_continuous_stream_stage(
      self, [](caf::unit_t&) {}, [](caf::unit_t&, caf::downstream<std::int32_t>& out, std::int32_t x) { out.push(x); },
      [](caf::unit_t&, const caf::error&) {});
  return {[=](Join) { return self->state.stage->add_outbound_path(); },
          [=](const caf::stream<std::int32_t>& in) { return self->state.stage->add_inbound_path(in); },
          [=](Part) { self->state.stage->out().close(); },
          [=](Log) { return std::to_string(self->state.stage->out().num_paths()); }};
}

/// A sink that takes no stream before it is Ready.
caf::behavior late_sink(Streamer* self) {
  self->set_default_handler(caf::skip);
  return {[=](Ready) { self->become(streamer(self)); }};
}

struct MemberState {
  std::string log;
};

caf::behavior member(caf::stateful_actor<MemberState>* self) {
  return {[=](Join, const caf::group& group) { self->join(group); },
          [=](Part, const caf::group& group) { self->leave(group); },
          [=](Shout, const caf::group& group, const std::string& what) { self->send(group, Note::value, what); },
          [=](Note, const std::string& what) { self->state.log += what + " "; },
          [=](const caf::group_down_msg&) { self->state.log += "group down "; },
          [=](Log) { return self->state.log; }};
}

class Groups : public Semantics {
 protected:
  caf::group group_of(const caf::actor& actor) {
    return system().groups().get_local("semantics " + std::to_string(actor.id()));
  }
  /// Shouts until the other one has heard it: joining takes effect some time after the answer.
  bool hears(const caf::actor& who, const caf::actor& shouting, const caf::group& group) {
    const Deadline deadline = Deadline::after(kLong);
    while (log_of(who).empty()) {
      EXPECT_EQ(order(shouting, Shout::value, group, std::string("called")), "normal");
      if (deadline.passed()) return false;
    }
    return log_of(who).starts_with("called ");
  }
};
INSTANTIATE_TEST_SUITE_P(Over, Groups, ::testing::ValuesIn(Sides::kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Groups);

TEST_P(Groups, OfCafReachMembersOfTheOtherSides) {
  const auto shouting = near("member");
  const caf::group group = group_of(shouting);
  for (const auto& joining : {far("member"), third("member"), near("member")}) {
    EXPECT_EQ(order(joining, Join::value, group), "normal");
    EXPECT_TRUE(hears(joining, shouting, group)) << log_of(joining);
  }
}

TEST_P(Groups, OfCafAreReachedFromTheOtherSides) {
  const auto joining = near("member");
  const caf::group group = group_of(joining);
  EXPECT_EQ(order(joining, Join::value, group), "normal");
  EXPECT_TRUE(hears(joining, far("member"), group)) << log_of(joining);
  const auto beyond = third("member");
  EXPECT_EQ(order(beyond, Join::value, group), "normal");
  EXPECT_TRUE(hears(beyond, far("member"), group)) << log_of(beyond);
}

TEST_P(Groups, OfCafTellNothingToWhoHasLeft) {
  const auto joining = far("member");
  const auto witness = far("member");
  const auto shouting = near("member");
  const caf::group group = group_of(joining);
  EXPECT_EQ(order(joining, Join::value, group), "normal");
  EXPECT_TRUE(hears(joining, shouting, group));
  EXPECT_EQ(order(joining, Part::value, group), "normal");
  const std::string before = log_of(joining);
  EXPECT_EQ(order(witness, Join::value, group), "normal");
  EXPECT_TRUE(hears(witness, shouting, group));
  EXPECT_EQ(log_of(joining), before);
}

class Streams : public Semantics {
 protected:
  std::string end_of_stream_at(const caf::actor& actor) {
    std::string end;
    (*self)
        ->request(actor, kLong, Wait::value)
        .receive([&](std::int64_t sum, const std::string& how) { end = std::to_string(sum) + " " + how; },
                 [&](const caf::error& error) { end = brief(error); });
    return end;
  }
  static constexpr std::int32_t kMany = 10'000;
  static constexpr std::int32_t kEndless = -1;
  static constexpr std::int64_t kSum = std::int64_t{kMany} * (kMany - 1) / 2;
};
INSTANTIATE_TEST_SUITE_P(Over, Streams, ::testing::ValuesIn(Sides::kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Streams);

TEST_P(Streams, ReachTheOtherSide) {
  const auto sink = far("streamer");
  const auto source = near("streamer");
  EXPECT_EQ(order(source, Stream::value, sink, kMany), "normal");
  EXPECT_EQ(end_of_stream_at(sink), std::to_string(kSum) + " normal");
  EXPECT_EQ(end_of_stream_at(source), "0 normal");
}

TEST_P(Streams, ComeFromTheOtherSide) {
  const auto sink = near("streamer");
  EXPECT_EQ(order(far("streamer"), Stream::value, sink, kMany), "normal");
  EXPECT_EQ(end_of_stream_at(sink), std::to_string(kSum) + " normal");
}

TEST_P(Streams, OfCompositionsGoThroughStagesOfAllSides) {
  const auto sink = near("streamer");
  (*self)->send(sink * far("twofold") * third("twofold") * near("streamer"), From::value, kMany);
  EXPECT_EQ(end_of_stream_at(sink), std::to_string(4 * kSum) + " normal");
}

TEST_P(Streams, WaitForASinkThatIsNotReady) {
  const auto sink = far("late sink");
  (*self)->send(sink * near("streamer"), From::value, kMany);
  (*self)->send(sink, Ready::value);
  EXPECT_EQ(end_of_stream_at(sink), std::to_string(kSum) + " normal");
}

TEST_P(Streams, AreForkedToSinksThatJoinAStageThatRuns) {
  const auto fork = far("fork");
  const std::vector<caf::actor> sinks{near("streamer"), third("streamer"), far("streamer")};
  for (const auto& sink : sinks) (*self)->send(sink * fork, Join::value);
  EXPECT_TRUE(log_becomes(fork, "3"));
  for (const auto& source : {near("streamer"), third("streamer")}) {
    (*self)->send(fork * source, From::value, kMany);
    EXPECT_EQ(end_of_stream_at(source), "0 normal");
  }
  EXPECT_EQ(order(fork, Part::value), "normal");
  for (const auto& sink : sinks) EXPECT_EQ(end_of_stream_at(sink), std::to_string(2 * kSum) + " normal");
}

/// An actor in a stream ends only after the stream, except by `kill`.
TEST_P(Streams, WithoutAnEndEndWithASourceThatIsKilled) {
  const auto sink = near("streamer");
  const auto source = far("streamer");
  EXPECT_EQ(order(source, Stream::value, sink, kEndless), "normal");
  EXPECT_TRUE(lives(source));
  caf::anon_send_exit(source, caf::exit_reason::kill);
  EXPECT_EQ(end_of(source), "exit kill");
  EXPECT_THAT(end_of_stream_at(sink), ::testing::EndsWith(" exit kill"));
}

TEST_P(Streams, OfSeveralSourcesMeetInOneSink) {
  const auto sink = far("streamer");
  for (const auto& source : {near("streamer"), far("streamer"), third("streamer")}) {
    EXPECT_EQ(order(source, Stream::value, sink, std::int32_t{1000}), "normal");
    EXPECT_EQ(end_of_stream_at(source), "0 normal");
  }
}

class GroupsOfTheDead : public MortalSemantics {};
INSTANTIATE_TEST_SUITE_P(Over, GroupsOfTheDead, ::testing::ValuesIn(Sides::mortal_kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GroupsOfTheDead);

TEST_P(GroupsOfTheDead, GoOnWithoutTheirMembersThere) {
  const auto joining = near("member");
  const auto there = far("member");
  EXPECT_EQ(order(joining, Join::value, system().groups().get_local("of the near side")), "normal");
  EXPECT_EQ(order(there, Join::value, system().groups().get_local("of the near side")), "normal");
  sides().kill_far();
  EXPECT_EQ(end_of(there), "exit remote_link_unreachable");
  EXPECT_EQ(order(joining, Shout::value, system().groups().get_local("of the near side"), std::string("on")), "normal");
  EXPECT_TRUE(log_becomes(joining, "on "));
}

}  // namespace

void add_stream_roles(caf::actor_system_config& config) {
  register_actor(config, "streamer", streamer);
  register_actor(config, "twofold", twofold);
  register_actor(config, "late sink", late_sink);
  register_actor(config, "fork", fork);
  register_actor(config, "member", member);
}

}  // namespace troupe::test::semantics
