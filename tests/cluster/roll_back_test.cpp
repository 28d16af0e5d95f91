// Gradients that are not finite: one verdict of all ranks, and its consequences.

#include <gmock/gmock.h>

#include <chrono>
#include <future>

#include "runtime/checkpoint/store.hpp"
#include "tests/cluster/session_ranks.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Ranks on threads of this process; the second one's gradient of "b" contains a NaN.
class RollBack : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!ucx_available()) GTEST_SKIP() << "this build has no UCX, over which ranks talk";
  }
  RanksRan run(std::uint32_t ranks, std::vector<std::string> more, const Spoils& spoils,
               const std::function<void()>& at_epoch = {}) const {
    more.insert(more.begin(), {"train.non_finite=roll_back", "train.steps=30", "checkpoint.every_steps=10",
                               "optimizer.rule=momentum", "optimizer.rate=0.02", "evaluate.every_epochs=0"});
    return run_ranks(folder_, ranks, more, spoils, at_epoch);
  }
  CheckpointStore store() const { return CheckpointStore((folder_.path() / "run/checkpoints").string()); }
  JobFolder folder_;
};

TEST_F(RollBack, TakesAllRanksBackToTheNewestCheckpointWithALowerRate) {
  const RanksRan ran = run(2, {}, [](std::uint32_t rank, std::uint64_t number) { return rank == 1 && number == 13; });
  for (const RunResult& result : ran.results) {
    EXPECT_TRUE(result.status.ok()) << result.status.text();
    EXPECT_EQ(result.total.steps, 30u);
    EXPECT_EQ(result.parameters_hash, ran.results[0].parameters_hash);
  }
  EXPECT_THAT(ran.notes, HasSubstr("step 13: the gradient of b, first at rank 1 is not finite: the run returns to the "
                                   "checkpoint of step 10, number 1 of at most 3, with 0.5 times the learning rate"));
  EXPECT_THAT(ran.notes, HasSubstr("step 10 of 30"));
  ASSERT_FALSE(store().list().empty());
  EXPECT_EQ(store().read(store().list().front()).roll_backs, 1u);
  EXPECT_EQ(store().read(store().list().front()).run, store().read(store().list().back()).run);
}

TEST_F(RollBack, TrainsAsARunThatWasResumedWithTheLowerRate) {
  const RanksRan ran = run(2, {}, [](std::uint32_t rank, std::uint64_t number) { return rank == 1 && number == 13; });
  ASSERT_TRUE(ran.results[0].status.ok()) << ran.results[0].status.text();
  CheckpointId tenth;
  for (const CheckpointId& id : store().list())
    if (id.steps == 10) tenth = id;
  const RanksRan same = run(2, {"optimizer.rate=0.01", "checkpoint.resume=\"" + store().folder_of(tenth) + '"'}, {});
  ASSERT_TRUE(same.results[0].status.ok()) << same.results[0].status.text();
  for (const auto& [step, loss] : same.losses) EXPECT_EQ(ran.losses.at(step), loss) << "step " << step;
  EXPECT_EQ(same.results[0].parameters_hash, ran.results[0].parameters_hash);
}

TEST_F(RollBack, EndsTheRunAtAllRanksWhenItHasGoneBackAsOftenAsItMay) {
  const RanksRan ran = run(2, {"train.roll_backs=2"},
                           [](std::uint32_t rank, std::uint64_t number) { return rank == 1 && number >= 13; });
  for (const RunResult& result : ran.results) {
    EXPECT_EQ(result.status.code(), Code::device_fault);
    EXPECT_TRUE(result.judged);
    EXPECT_THAT(std::string{result.status.text()},
                HasSubstr("step 10: the gradient of b, first at rank 1 is not finite, and the run has returned to a "
                          "checkpoint 2 times, as often as train.roll_backs allows"));
  }
}

TEST_F(RollBack, GoesBackToTheBeginningBeforeTheFirstCheckpointAndOnOneRank) {
  const RanksRan ran = run(1, {}, [](std::uint32_t, std::uint64_t number) { return number == 2; });
  EXPECT_TRUE(ran.results[0].status.ok()) << ran.results[0].status.text();
  EXPECT_EQ(ran.results[0].total.steps, 30u);
  EXPECT_THAT(ran.notes,
              HasSubstr("step 2: the gradient of b, first at rank 0 is not finite: the run returns to where it "
                        "began"));
}

TEST_F(RollBack, WorksBehindTheNextStepToo) {
  const RanksRan ran = run(2, {"update.policy=double_buffered"},
                           [](std::uint32_t rank, std::uint64_t number) { return rank == 1 && number == 13; });
  for (const RunResult& result : ran.results) EXPECT_TRUE(result.status.ok()) << result.status.text();
  EXPECT_THAT(ran.notes, HasSubstr("the gradient of b, first at rank 1 is not finite: the run returns"));
}

/// An epoch has 17 steps, and the run ends with its fourth one.
TEST_F(RollBack, CountsEvaluationsFromBeforeThoughTheirLinesAreNotInTheLogYet) {
  const std::vector<std::string> settings{"evaluate.every_epochs=1", "evaluate.patience=3", "evaluate.min_change=1000",
                                          "train.steps=300", "checkpoint.every_steps=20"};
  const RanksRan same = run(1, settings, {});
  ASSERT_LT(same.results[0].total.steps, 300u) << same.results[0].status.text();
  std::filesystem::remove_all(folder_.path() / "run");  // its log has the evaluations already
  std::promise<void> back;
  const std::shared_future<void> is_back = back.get_future().share();
  const RanksRan ran = run(
      1, settings,
      [&](std::uint32_t, std::uint64_t number) {
        if (number == 46) back.set_value();  // the first step after the return
        return number == 45;
      },
      [&] { EXPECT_EQ(is_back.wait_for(std::chrono::seconds(30)), std::future_status::ready); });
  EXPECT_THAT(ran.notes, HasSubstr("the run returns to the checkpoint of step 40"));
  EXPECT_EQ(ran.results[0].total.steps, same.results[0].total.steps) << ran.results[0].status.text();
}

/// Separate processes, each of which reports what it saw.
class Verdict : public ClusterTest {
 protected:
  std::vector<std::unique_ptr<Program>> run(std::uint32_t ranks, const std::vector<std::string>& settings) {
    const std::uint16_t port = free_port();
    std::vector<std::unique_ptr<Program>> programs;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      ProgramStart start = folder_.rank(rank, ranks, "127.0.0.1", port);
      start.arguments = {PROBE_PROGRAM,       "app.toml",       "data.batch=20",          "faults.dead_ms=20000",
                         "placement.cores=0", "train.steps=30", "evaluate.every_epochs=0"};
      start.arguments.insert(start.arguments.end(), settings.begin(), settings.end());
      start.environment.emplace_back("TROUPE_SECRET_FILE", folder_.write_secret("secret", "open sesame, you"));
      programs.push_back(std::make_unique<Program>(start));
    }
    return programs;
  }
};

TEST_F(Verdict, ToStopIsToldByAllProcessesInTheSameWords) {
  const auto programs = run(3, {"optimizer.clip_norm=1e6"});
  for (const auto& program : programs) {
    EXPECT_EQ(program->wait(60s), 1) << program->err();
    EXPECT_THAT(program->out(),
                HasSubstr("ended: step 7: the gradient of b, first at rank 2 is not finite (the parameters "
                          "are those of the step before)"));
    EXPECT_EQ(program->out(), programs[0]->out());
  }
}

TEST_F(Verdict, ToLeaveAStepOutIsTheSameAtAllProcesses) {
  const auto programs = run(3, {"train.non_finite=skip"});
  for (const auto& program : programs) {
    EXPECT_EQ(program->wait(60s), 0) << program->err();
    EXPECT_THAT(program->out(), HasSubstr("left out: step 7: the gradient of b, first at rank 2\n"));
    EXPECT_THAT(program->out(), HasSubstr("ended after step 30"));
  }
}

TEST_F(Verdict, ToGoBackKeepsTheProcesses) {
  const auto programs = run(3, {"train.non_finite=roll_back", "checkpoint.every_steps=5"});
  for (const auto& program : programs) {
    EXPECT_EQ(program->wait(60s), 0) << program->err();
    EXPECT_THAT(program->out(), HasSubstr("ended after step 30"));
  }
  EXPECT_THAT(programs[0]->out(), HasSubstr("step 7: the gradient of b, first at rank 2 is not finite: the run returns "
                                            "to the checkpoint of step 5"));
}

}  // namespace
}  // namespace troupe::testing
