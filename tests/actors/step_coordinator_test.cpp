#include "actors/step_coordinator.hpp"

#include <gmock/gmock.h>

#include <memory>
#include <optional>
#include <vector>

#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"
#include "tests/support/actor_world.hpp"

namespace troupe {
namespace {

using ::testing::HasSubstr;

/// A rank's device from the coordinator's point of view: joins, and answers at once, or when the test says so.
struct FakeDeviceActor {
  static StepOrderReceiver::behavior_type listen(StepOrderReceiver::pointer self, FakeDeviceActor* to) {
    self->send(to->coordinator, JoinSteps{to->rank});
    return {[to, self](const HoldSteps& hold) {
              to->holds.push_back(hold);
              if (!to->answers) return;
              self->send(to->coordinator, StepsHeld{to->rank, hold.number, to->next, to->last, to->refusal});
            },
            [to](const StepOrder& order) { to->orders.push_back(order); },
            [to](const EvaluationVerdict& verdict) { to->verdicts.push_back(verdict.step); }};
  }

  std::uint32_t rank = 0;
  std::uint64_t next = 0;
  std::uint64_t last = 999;
  std::string refusal;
  bool answers = true;
  StepCoordinator coordinator;
  StepOrderReceiver actor;
  std::vector<HoldSteps> holds;
  std::vector<StepOrder> orders;
  std::vector<std::uint64_t> verdicts;  // steps
};

class StepCoordinatorTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kRanks = 3;
  StepCoordinatorTest() {
    const Schedule schedule{.train_samples = 10000, .rows = 10, .ranks = kRanks, .steps = 1000};
    coordinator =
        spawn_step_coordinator(world.system(), {schedule, std::vector<std::string>(kRanks, "node"), {}, schedule.rows});
    coordinator->attach_functor([this](const caf::error& reason) { ended = from_caf(reason); });
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      auto& device = *devices.emplace_back(std::make_unique<FakeDeviceActor>());
      device.rank = rank;
      device.next = 10 + rank;
      device.coordinator = coordinator;
    }
  }
  ~StepCoordinatorTest() override {
    for (const auto& device : devices)
      if (device->actor) caf::anon_send_exit(device->actor, caf::exit_reason::kill);
    caf::anon_send_exit(coordinator, caf::exit_reason::kill);
    world.run();
  }

  void join(std::uint32_t rank) {
    devices[rank]->actor = world.system().spawn(&FakeDeviceActor::listen, devices[rank].get());
    world.run();
  }
  void join_all() {
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) join(rank);
  }
  void request(const PolicySettings& policy) {
    world.send(coordinator,
               PolicyRequest{policy, "a test wants it", [this](const StepOutcome& o) { outcomes.push_back(o); }});
    world.run();
  }
  void wish_rebuild() {
    world.send(coordinator, RebuildRequest{"a test wants it", [this](const StepOutcome& o) { outcomes.push_back(o); }});
    world.run();
  }
  void wish_end(std::uint32_t rank) {
    world.send(coordinator, EndRequest{rank});
    world.run();
  }

  test::ActorWorld world;
  StepCoordinator coordinator;
  std::vector<std::unique_ptr<FakeDeviceActor>> devices;
  std::vector<StepOutcome> outcomes;
  Status ended;
};

TEST_F(StepCoordinatorTest, PassesTheVerdictOnAnEvaluationOnToAllRanks) {
  join_all();
  world.send(coordinator, EvaluationVerdict{.step = 7, .end = true});
  world.run();
  for (const auto& device : devices) EXPECT_EQ(device->verdicts, std::vector<std::uint64_t>{7});
}

TEST_F(StepCoordinatorTest, SwitchesAllRanksAtOneStepBeyondThoseThatAnyHasBegun) {
  join_all();
  request({.kind = PolicyKind::local_sgd, .every_steps = 4});
  for (const auto& device : devices) {
    ASSERT_EQ(device->orders.size(), 1u);
    EXPECT_EQ(device->orders[0].kind, StepOrderKind::switch_policy);
    EXPECT_EQ(device->orders[0].at, 13u) << "rank 2 takes step 12 next, and that one must know that it is the last";
    EXPECT_EQ(device->orders[0].policy.every_steps, 4u);
    EXPECT_EQ(device->orders[0].reason, "a test wants it");
  }
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_TRUE(outcomes[0].status.ok());
  EXPECT_EQ(outcomes[0].first, 13u);
}

TEST_F(StepCoordinatorTest, LetsEverybodyGoOnAsBeforeWhenOneRankCannotTakeThePolicy) {
  join_all();
  devices[1]->refusal = "no memory for it";
  request({.kind = PolicyKind::local_sgd});
  for (const auto& device : devices) {
    ASSERT_EQ(device->orders.size(), 1u);
    EXPECT_EQ(device->orders[0].kind, StepOrderKind::go_on);
  }
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].status.code(), Code::invalid);
  EXPECT_THAT(std::string{outcomes[0].status.text()}, HasSubstr("rank 1 on node node: no memory for it"));
}

TEST_F(StepCoordinatorTest, HoldsNobodyForAPolicyThatCannotWork) {
  join_all();
  request({.kind = PolicyKind::block_momentum, .block_samples = 7});
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_THAT(std::string{outcomes[0].status.text()}, HasSubstr("update.block_samples = 7"));
  EXPECT_TRUE(devices[0]->holds.empty());
}

TEST_F(StepCoordinatorTest, WaitsForEveryRankToJoin) {
  join(0);
  join(1);
  request({.kind = PolicyKind::local_sgd});
  EXPECT_TRUE(devices[0]->holds.empty());
  join(2);
  EXPECT_EQ(devices[0]->orders.size(), 1u);
  EXPECT_EQ(outcomes.size(), 1u);
}

TEST_F(StepCoordinatorTest, AnswersOneRequestAfterTheOther) {
  join_all();
  devices[2]->answers = false;
  request({.kind = PolicyKind::local_sgd});
  request({.kind = PolicyKind::sync});
  EXPECT_EQ(devices[0]->holds.size(), 1u);
  devices[2]->answers = true;
  caf::anon_send(coordinator, StepsHeld{2, 1, 12, 999, {}});
  world.run();
  ASSERT_EQ(devices[0]->orders.size(), 2u);
  EXPECT_EQ(devices[0]->orders[1].policy.kind, PolicyKind::sync);
  EXPECT_EQ(outcomes.size(), 2u);
}

TEST_F(StepCoordinatorTest, RefusesASwitchThatTheRunsEndWouldOvertake) {
  join_all();
  devices[0]->last = 12;  // a vote to end was counted
  request({.kind = PolicyKind::local_sgd});
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_THAT(std::string{outcomes[0].status.text()}, HasSubstr("the run ends with step 12"));
  EXPECT_EQ(devices[1]->orders.at(0).kind, StepOrderKind::go_on);
}

TEST_F(StepCoordinatorTest, EndsAllRanksAfterTheSameStepHoweverManyAskForIt) {
  join_all();
  wish_end(1);
  wish_end(2);
  for (const auto& device : devices) {
    ASSERT_EQ(device->orders.size(), 1u);
    EXPECT_EQ(device->orders[0].kind, StepOrderKind::end);
    EXPECT_EQ(device->orders[0].at, 12u);
  }
  request({.kind = PolicyKind::local_sgd});
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_THAT(std::string{outcomes[0].status.text()}, HasSubstr("about to end"));
}

TEST_F(StepCoordinatorTest, EndsTheViewAtOneStepOfAllRanksAndTakesNoOtherRequestUntilTheNext) {
  join_all();
  wish_rebuild();
  for (const auto& device : devices) {
    ASSERT_EQ(device->orders.size(), 1u);
    EXPECT_EQ(device->holds[0].about, StepOrderKind::rebuild);
    EXPECT_EQ(device->orders[0].kind, StepOrderKind::rebuild);
    EXPECT_EQ(device->orders[0].at, 12u);
  }
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].first, 12u);
  request({.kind = PolicyKind::local_sgd});
  ASSERT_EQ(outcomes.size(), 2u);
  EXPECT_THAT(std::string{outcomes[1].status.text()}, HasSubstr("go over to another view"));
  wish_end(1);
  EXPECT_EQ(devices[0]->orders.size(), 1u) << "it is wished again in the next view";
}

TEST_F(StepCoordinatorTest, KeepsTheViewWhenOneRankCannotLeaveItOrTheRunEndsBefore) {
  join_all();
  devices[2]->refusal = "an app holds its memory";
  wish_rebuild();
  devices[2]->refusal = "";
  devices[1]->last = 12;
  wish_rebuild();
  ASSERT_EQ(outcomes.size(), 2u);
  EXPECT_THAT(std::string{outcomes[0].status.text()}, HasSubstr("rank 2 on node node: an app holds its memory"));
  EXPECT_THAT(std::string{outcomes[1].status.text()}, HasSubstr("the run ends with step 12, before another view"));
  for (const auto& device : devices)
    for (const StepOrder& order : device->orders) EXPECT_EQ(order.kind, StepOrderKind::go_on);
}

TEST_F(StepCoordinatorTest, EndsNothingThatEndsByItself) {
  join_all();
  devices[2]->next = 999;
  wish_end(0);
  EXPECT_EQ(devices[0]->orders.at(0).kind, StepOrderKind::go_on);
}

TEST_F(StepCoordinatorTest, NamesTheRanksThatDoNotAnswer) {
  join_all();
  devices[1]->answers = false;
  request({.kind = PolicyKind::local_sgd});
  world.send(coordinator, AnswersOverdue{1});
  world.run();
  EXPECT_EQ(ended.code(), Code::timeout);
  EXPECT_THAT(std::string{ended.text()}, HasSubstr("rank 1 on node node;"));
  EXPECT_THAT(std::string{ended.text()}, ::testing::Not(HasSubstr("rank 2")));
}

TEST_F(StepCoordinatorTest, RefusesMoreRequestsThanItKeeps) {
  for (std::size_t i = 0; i <= kRequestsKept; ++i) request({.kind = PolicyKind::local_sgd});
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_THAT(std::string{outcomes[0].status.text()}, HasSubstr("requests wait"));
}

}  // namespace
}  // namespace troupe
