// Sessions in a group that the app has made and continues to use.

#include <gmock/gmock.h>

#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <functional>
#include <thread>
#include <vector>

#include "apps/group/ucx_group.hpp"
#include "tests/cluster/session_threads.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

Deadline long_enough() { return Deadline::after(60s); }

caf::behavior doubler(caf::event_based_actor*) {
  return {[](std::int32_t number) { return 2 * number; }};
}

/// The actor's answer to 21.
std::int32_t ask(caf::actor_system& system, const caf::actor& actor) {
  std::int32_t answer = 0;
  caf::scoped_actor self(system);
  self->request(actor, 20s, std::int32_t{21})
      .receive([&](std::int32_t said) { answer = said; },
               [](const caf::error&) { ADD_FAILURE() << "there was no answer"; });
  return answer;
}

class GroupSession : public SessionThreads {
 protected:
  void SetUp() override {
    if (!ucx_available()) GTEST_SKIP() << "this build has no UCX";
  }

  using Body = std::function<void(Blocking&, Group&)>;
  /// `count` processes' parts in a group, each on a thread.
  void in_group(std::uint32_t count, const Body& body, bool knows_sessions = true, bool tells_cores = true) const {
    const std::uint16_t port = free_port();
    std::vector<std::thread> threads;
    for (std::uint32_t peer = 0; peer < count; ++peer) {
      threads.emplace_back([&, peer] {
        Blocking blocking = Blocking::on_thread("test");
        caf::actor_system_config config;
        config.set("scheduler.max-threads", 2u);
        configure_group(config);
        if (knows_sessions) configure_session(config);
        caf::actor_system system(config);
        GroupOptions options = ucx_group_options();
        options.place = LaunchPlace{.rank = peer,
                                    .world_size = count,
                                    .local_rank = peer,
                                    .master_address = "127.0.0.1",
                                    .master_port = port,
                                    .secret = "a secret of more than sixteen letters"};
        if (!tells_cores) options.hello.topology = {};
        const auto group = Group::join(blocking, system, std::move(options));
        try {
          body(blocking, *group);
        } catch (const Error& error) {
          ADD_FAILURE() << "peer " << peer << ": " << error.what();
        }
        const StopReport report = group->stop(blocking, long_enough());
        EXPECT_TRUE(report.clean()) << report.text();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  /// The hash of the weights at the end of a short run.
  std::uint64_t train(Blocking& blocking, Group* group) const {
    SessionOptions made = options({"train.steps=30", "placement.cores=0"});
    made.group = group;
    const RunResult result = Session::start(blocking, std::move(made))->run(blocking);
    EXPECT_TRUE(result.status.ok()) << result.status.text();
    EXPECT_EQ(result.total.steps, 30u);
    return result.parameters_hash;
  }
  std::uint64_t train_alone(std::uint32_t ranks) const {
    const auto results = run(ranks, options({"train.steps=30", "placement.cores=0"}), run_to_the_end);
    for (const RunResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status.text();
    return results.front().parameters_hash;
  }
  /// The reason for which no session starts there.
  std::string refusal(Blocking& blocking, Group& group, std::vector<std::string> settings = {}) const {
    try {
      SessionOptions made = options(std::move(settings));
      made.group = &group;
      Session::start(blocking, std::move(made));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid);
      return error.what();
    }
    return "it started";
  }
};

TEST_F(GroupSession, TrainsToTheBitsOfOneWithAGroupOfItsOwnAndLeavesTheGroupAlone) {
  for (const std::uint32_t ranks : {1u, 2u, 3u}) {
    const std::uint64_t hash = train_alone(ranks);
    in_group(ranks, [&](Blocking& blocking, Group& group) {
      const caf::actor own = group.system().spawn(doubler);
      group.publish("doubler", own);
      EXPECT_EQ(train(blocking, &group), hash) << ranks << " ranks";
      for (std::uint32_t peer = 0; peer < ranks; ++peer)
        EXPECT_EQ(ask(group.system(), group.lookup(blocking, {peer}, "doubler", long_enough())), 42);
      group.all_gather(blocking, "asked", {}, long_enough());
      caf::anon_send_exit(own, caf::exit_reason::user_shutdown);
    });
  }
}

TEST_F(GroupSession, FollowsOthersInOneGroup) {
  const std::uint64_t hash = train_alone(2);
  in_group(2, [&](Blocking& blocking, Group& group) {
    for (int session = 0; session < 4; ++session) EXPECT_EQ(train(blocking, &group), hash) << "session " << session;
  });
}

TEST_F(GroupSession, ReachesTheAppsActorsAndTheyItsByName) {
  in_group(2, [&](Blocking& blocking, Group& group) {
    const caf::actor own = group.system().spawn(doubler);
    group.publish("doubler", own);
    SessionOptions made = options({"train.steps=20", "placement.cores=0"});
    made.group = &group;
    const auto session = Session::start(blocking, std::move(made));
    EXPECT_TRUE(session->next(blocking));
    const Peer other{1 - group.self().value};
    EXPECT_TRUE(group.remote().resolve(blocking, other, "session1.membership", long_enough()));
    EXPECT_TRUE(group.remote().resolve(blocking, {0}, "session1.reporter", long_enough()));
    EXPECT_EQ(ask(group.system(), group.lookup(blocking, other, "doubler", long_enough())), 42);
    while (session->next(blocking))
      if (!session->step(blocking)) break;
    const RunResult result = session->finish(blocking);
    EXPECT_TRUE(result.status.ok()) << result.status.text();
    group.all_gather(blocking, "done", {}, long_enough());
    caf::anon_send_exit(own, caf::exit_reason::user_shutdown);
  });
}

TEST_F(GroupSession, ThatARankGivesUpEndsForTheOthersAndTheGroupGoesOn) {
  in_group(2, [&](Blocking& blocking, Group& group) {
    SessionOptions made = options({"train.steps=100000", "placement.cores=0", "faults.exchange_s=20"});
    made.group = &group;
    auto session = Session::start(blocking, std::move(made));
    if (group.self().value == 1) {
      for (int step = 0; step < 5; ++step) {
        EXPECT_TRUE(session->next(blocking));
        EXPECT_TRUE(session->step(blocking));
      }
      session.reset();
    } else {
      while (session->next(blocking))
        if (!session->step(blocking)) break;
      const RunResult result = session->finish(blocking);
      EXPECT_EQ(result.status.code(), Code::peer_lost) << result.status.text();
      EXPECT_THAT(std::string{result.status.text()}, HasSubstr("rank 1"));
    }
    session.reset();
    EXPECT_EQ(group.all_gather(blocking, "still here", {}, long_enough()).size(), 2u);
    EXPECT_NE(train(blocking, &group), 0u);
  });
}

TEST_F(GroupSession, IsRefusedWhereTheRanksHaveOtherSettings) {
  in_group(2, [&](Blocking& blocking, Group& group) {
    const std::string seconds = group.self().value == 0 ? "20" : "21";
    EXPECT_THAT(refusal(blocking, group, {"faults.exchange_s=" + seconds}), HasSubstr("has other settings than rank"));
  });
}

TEST_F(GroupSession, IsRefusedWhileAnotherOneOfTheGroupHasNotEnded) {
  const std::uint64_t hash = train_alone(2);
  in_group(2, [&](Blocking& blocking, Group& group) {
    SessionOptions made = options({"train.steps=30", "placement.cores=0"});
    made.group = &group;
    const auto session = Session::start(blocking, std::move(made));
    EXPECT_THAT(refusal(blocking, group), HasSubstr("a group has one session at a time"));
    EXPECT_EQ(session->run(blocking).parameters_hash, hash) << "the refused one has changed nothing";
    EXPECT_EQ(train(blocking, &group), hash) << "the first one has ended, though it still exists";
  });
}

TEST_F(GroupSession, IsRefusedByAGroupThatIsNotPreparedForOne) {
  in_group(1, [&](Blocking& blocking, Group& group) {
    SessionOptions made = options();
    made.group = &group;
    made.place = LaunchPlace{};
    EXPECT_THROW(Session::start(blocking, std::move(made)), Error);
  });
  in_group(
      1,
      [&](Blocking& blocking, Group& group) {
        EXPECT_THAT(refusal(blocking, group), HasSubstr("call configure_session(config)"));
      },
      /*knows_sessions=*/false);
  in_group(
      1, [&](Blocking& blocking, Group& group) { EXPECT_THAT(refusal(blocking, group), HasSubstr("discover()")); },
      /*knows_sessions=*/true, /*tells_cores=*/false);
}

}  // namespace
}  // namespace troupe::testing
