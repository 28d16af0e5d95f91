#include "actors/membership_actor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include <caf/event_based_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"
#include "tests/support/actor_world.hpp"

namespace troupe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The membership actor of one process, and the effects that it had.
struct Process {
  Process(test::ActorWorld& world, std::uint32_t rank) : self(rank), actor(spawn_membership(world.system())) {
    device = world.listener<BeginReceiver, Begin>([this](const Begin&) { ++begun; });
  }
  MembershipParts parts(const MembershipPeer& coordinator, std::size_t ranks) {
    MembershipParts p{.view = {1}, .self = self, .hosts = std::vector<std::string>(ranks, "node")};
    p.coordinator = coordinator;
    p.begin = {device};
    p.watched = {caf::actor_cast<caf::actor>(device)};
    p.abort_view = [this](const Status& why) { aborted = why; };
    p.ended = [this](const RunEnd& end) { ended.push_back(end); };
    return p;
  }

  Rank self;
  MembershipActor actor;
  BeginReceiver device;
  int begun = 0;
  std::optional<Status> aborted;
  std::vector<RunEnd> ended;
};

class MembershipActorTest : public ::testing::Test {
 protected:
  ~MembershipActorTest() override {
    for (Process* p : {&zero, &one}) {
      caf::anon_send_exit(p->actor, caf::exit_reason::kill);
      caf::anon_send_exit(p->device, caf::exit_reason::kill);
    }
    world.run();
  }
  void start(Process& p) {
    world.send(p.actor, p.parts(p.self.value == 0 ? MembershipPeer{} : MembershipPeer{zero.actor}, 2));
    world.run();
  }
  template <class Message>
  void tell(Process& p, Message message) {
    world.send(p.actor, std::move(message));
    world.run();
  }

  test::ActorWorld world;
  Process zero{world, 0};
  Process one{world, 1};
};

TEST_F(MembershipActorTest, BeginsEverywhereWhenAllHaveJoined) {
  start(zero);
  EXPECT_EQ(zero.begun, 0);
  start(one);
  EXPECT_EQ(zero.begun, 1);
  EXPECT_EQ(one.begun, 1);
}

TEST_F(MembershipActorTest, EndsTheRunEverywhereWhenAllDevicesHaveFinished) {
  start(zero);
  start(one);
  tell(zero, DeviceFinished{false});
  EXPECT_TRUE(zero.ended.empty());
  tell(one, DeviceFinished{false});
  ASSERT_EQ(zero.ended.size(), 1u);
  ASSERT_EQ(one.ended.size(), 1u);
  EXPECT_TRUE(zero.ended[0].status.ok());
  EXPECT_TRUE(one.ended[0].status.ok());
}

TEST_F(MembershipActorTest, EndsTheRunWithTheVerdictWhenAllDevicesHaveComeToIt) {
  start(zero);
  start(one);
  const Status verdict{Code::device_fault, "step 5: the loss is not finite"};
  tell(zero, DeviceFinished{true, verdict});
  EXPECT_TRUE(zero.ended.empty());
  tell(one, DeviceFinished{true, verdict});
  for (const Process* process : {&zero, &one}) {
    ASSERT_EQ(process->ended.size(), 1u);
    EXPECT_EQ(process->ended[0].status.text(), verdict.text());
    EXPECT_TRUE(process->ended[0].judged);
    EXPECT_FALSE(process->ended[0].stopped);
  }
}

TEST_F(MembershipActorTest, AbortsTheViewWhenAProcessIsLostAndNamesIt) {
  start(zero);
  start(one);
  tell(zero, Committed{{1}, {11}, {}});
  tell(zero, PeerLost{{1}, {Code::peer_lost, "its socket was closed"}});
  ASSERT_TRUE(zero.aborted.has_value());
  ASSERT_EQ(zero.ended.size(), 1u);
  EXPECT_EQ(zero.ended[0].status.code(), Code::peer_lost);
  EXPECT_THAT(std::string{zero.ended[0].status.text()}, HasSubstr("rank 1 on node node was lost after step 12"));
}

TEST_F(MembershipActorTest, SaysWhatTheExchangeHeardOfARankWhoseMembershipEnds) {
  start(zero);
  start(one);
  caf::anon_send(caf::actor_cast<caf::actor>(one.device),
                 caf::exit_msg{{}, to_caf(Status{Code::peer_lost, "the GPU of rank 0 is broken"})});
  world.run();
  EXPECT_TRUE(one.ended.empty());
  caf::anon_send_exit(zero.actor, caf::exit_reason::kill);
  world.run();
  ASSERT_EQ(one.ended.size(), 1u);
  EXPECT_EQ(one.ended[0].status.code(), Code::peer_lost);
  EXPECT_THAT(std::string{one.ended[0].status.text()},
              AllOf(HasSubstr("rank 0 on node node was lost"), HasSubstr("the GPU of rank 0 is broken")));
}

TEST_F(MembershipActorTest, WaitsForTheCoordinatorsWordWhenAPeerIsGoneAndItsPartIsDone) {
  Process two{world, 2};
  for (Process* p : {&zero, &one, &two}) {
    world.send(p->actor, p->parts(p == &zero ? MembershipPeer{} : MembershipPeer{zero.actor}, 3));
    world.run();
  }
  tell(one, DeviceFinished{false});
  tell(one, PeerLost{{2}, {Code::peer_lost, "its endpoint was closed"}});
  EXPECT_FALSE(one.aborted);
  tell(two, DeviceFinished{false});
  tell(zero, DeviceFinished{false});
  ASSERT_EQ(one.ended.size(), 1u);
  EXPECT_TRUE(one.ended[0].status.ok());
  caf::anon_send_exit(two.actor, caf::exit_reason::kill);
  caf::anon_send_exit(two.device, caf::exit_reason::kill);
}

TEST_F(MembershipActorTest, OfARankThatLosesAnotherTellsTheCoordinatorWhomBeforeItEnds) {
  Process two{world, 2};
  for (Process* p : {&zero, &one, &two}) {
    world.send(p->actor, p->parts(p->self.value == 0 ? MembershipPeer{} : MembershipPeer{zero.actor}, 3));
    world.run();
  }
  tell(one, PeerLost{{2}, {Code::peer_lost, "its endpoint timed out"}});
  ASSERT_EQ(one.ended.size(), 1u);
  ASSERT_EQ(zero.ended.size(), 1u);
  EXPECT_THAT(std::string{zero.ended[0].status.text()}, HasSubstr("rank 2 on node node was lost"));
  for (Process* p : {&one, &two}) {
    caf::anon_send_exit(p->actor, caf::exit_reason::kill);
    caf::anon_send_exit(p->device, caf::exit_reason::kill);
  }
}

TEST_F(MembershipActorTest, OfTheCoordinatorTellsTheOthersWhomItLost) {
  Process two{world, 2};
  for (Process* p : {&zero, &one, &two}) {
    world.send(p->actor, p->parts(p->self.value == 0 ? MembershipPeer{} : MembershipPeer{zero.actor}, 3));
    world.run();
  }
  tell(zero, PeerLost{{1}, {Code::peer_lost, "it has been silent"}});
  for (const caf::actor& actor : {caf::actor_cast<caf::actor>(two.actor), caf::actor_cast<caf::actor>(two.device)})
    caf::anon_send_exit(actor, caf::exit_reason::kill);
  world.run();
  ASSERT_EQ(two.ended.size(), 1u);
  EXPECT_EQ(two.ended[0].status.code(), Code::peer_lost);
  EXPECT_THAT(std::string{two.ended[0].status.text()}, HasSubstr("rank 1 on node node was lost"));
  EXPECT_THAT(std::string{two.ended[0].status.text()}, HasSubstr("it has been silent"));
  EXPECT_TRUE(one.ended.empty()) << "it may live, and finds out by itself";
}

TEST_F(MembershipActorTest, RemembersALossThatCameBeforeItsParts) {
  tell(zero, PeerLost{{1}, {Code::peer_lost, "gone early"}});
  start(zero);
  ASSERT_EQ(zero.ended.size(), 1u);
  EXPECT_EQ(zero.ended[0].status.code(), Code::peer_lost);
}

TEST_F(MembershipActorTest, RemembersAMemberThatJoinedBeforeItsParts) {
  start(one);  // joins at once
  start(zero);
  EXPECT_EQ(zero.begun, 1);
  EXPECT_EQ(one.begun, 1);
}

TEST_F(MembershipActorTest, NamesWhoHasNotFinishedWhenTheEndIsOverdue) {
  start(zero);
  start(one);
  tell(zero, DeviceFinished{});
  ASSERT_TRUE(zero.ended.empty());
  tell(zero, EndOverdue{});
  ASSERT_EQ(zero.ended.size(), 1u);
  EXPECT_EQ(zero.ended[0].status.code(), Code::timeout);
  EXPECT_THAT(std::string{zero.ended[0].status.text()}, HasSubstr("not finished: rank 1 on node node"));
  EXPECT_THAT(std::string{zero.ended[0].status.text()}, HasSubstr("faults.exchange_s"));
  ASSERT_TRUE(zero.aborted.has_value());
}

TEST_F(MembershipActorTest, SaysThatRankZeroDoesNotEndTheRun) {
  start(zero);
  start(one);
  tell(one, DeviceFinished{});
  tell(one, EndOverdue{});
  ASSERT_EQ(one.ended.size(), 1u);
  EXPECT_THAT(std::string{one.ended[0].status.text()}, HasSubstr("rank 0 has not ended the run"));
}

TEST_F(MembershipActorTest, ForgetsThatTheEndIsOverdueOnceTheRunIsOver) {
  start(zero);
  start(one);
  tell(one, DeviceFinished{});
  tell(zero, DeviceFinished{});
  ASSERT_EQ(zero.ended.size(), 1u);
  tell(zero, EndOverdue{});
  EXPECT_EQ(zero.ended.size(), 1u);
  EXPECT_TRUE(zero.ended[0].status.ok()) << zero.ended[0].status.text();
}

TEST_F(MembershipActorTest, EndsWithWhatItsDeviceEndedWith) {
  start(zero);
  world.end(zero.device, to_caf(Status{Code::device_fault, "the core melted"}));
  ASSERT_EQ(zero.ended.size(), 1u);
  EXPECT_EQ(zero.ended[0].status.code(), Code::device_fault);
}

TEST_F(MembershipActorTest, LeavesItToTheWatchToNameAPeerThatTheExchangeLost) {
  start(zero);
  start(one);
  world.end(zero.device, to_caf(Status{Code::peer_lost, "Endpoint timeout"}));
  EXPECT_TRUE(zero.ended.empty());
  tell(zero, PeerLost{{1}, {Code::peer_lost, "its socket was closed"}});
  ASSERT_EQ(zero.ended.size(), 1u);
  EXPECT_THAT(std::string{zero.ended[0].status.text()}, HasSubstr("rank 1 on node node"));
}

TEST_F(MembershipActorTest, LosesTheCoordinatorWhenItsMembershipEnds) {
  start(zero);
  start(one);
  caf::anon_send_exit(zero.actor, caf::exit_reason::kill);
  world.run();
  ASSERT_EQ(one.ended.size(), 1u);
  EXPECT_EQ(one.ended[0].status.code(), Code::peer_lost);
  EXPECT_THAT(std::string{one.ended[0].status.text()}, HasSubstr("rank 0"));
}

TEST_F(MembershipActorTest, NamesWhoIsNotReadyWhenTheStartIsOverdue) {
  start(zero);
  tell(zero, StartOverdue{});
  ASSERT_EQ(zero.ended.size(), 1u);
  EXPECT_EQ(zero.ended[0].status.code(), Code::timeout);
  EXPECT_THAT(std::string{zero.ended[0].status.text()}, HasSubstr("rank 1"));
}

TEST_F(MembershipActorTest, WaitsForTheReportWhereThereIsOne) {
  auto parts = zero.parts({}, 1);
  parts.waits_for_report = true;
  tell(zero, std::move(parts));
  tell(zero, DeviceFinished{true});
  EXPECT_TRUE(zero.ended.empty());
  tell(zero, Reported{});
  ASSERT_EQ(zero.ended.size(), 1u);
  EXPECT_TRUE(zero.ended[0].stopped);
}

}  // namespace
}  // namespace troupe
