// Jobs of rtrun in f16, over the stand-in for the CUDA driver: they learn what f32 learns, with a loss scale that all
// ranks agree on.

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cluster/cuda_job.hpp"

namespace troupe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class F16Job : public CudaJob {
 protected:
  ProgramStart f16(std::uint32_t devices, std::uint32_t ranks, Settings settings) {
    const bool has_model = std::ranges::any_of(settings, [](const auto& s) { return s.starts_with("model.name"); });
    settings.insert(settings.begin(), "model.dtype=f16");
    if (!has_model) settings.insert(settings.begin(), "model.units=[16]");
    return job(devices, ranks, on("cuda", std::move(settings)));
  }
  ProgramStart f32(std::uint32_t devices, std::uint32_t ranks, Settings settings) {
    return job(devices, ranks, on("cuda", std::move(settings)));
  }
  static void expect_nearly(const std::vector<double>& found, const std::vector<double>& wanted) {
    ASSERT_FALSE(wanted.empty());
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 0.02 * wanted[i]) << "line " << i;
  }
  nlohmann::json log() const {
    std::ifstream file{folder_.path() / "run" / "log"};
    return nlohmann::json::parse(file, nullptr, false);
  }
};

const std::string kFits = "model.loss_scale_start=1024";

TEST_F(F16Job, LearnsNearlyWhatF32Learns) {
  expect_nearly(train(f16(1, 1, {kFits})), train(f32(1, 1, {})));
  for (const char* const collectives : {kOwn, kNccl}) {
    SCOPED_TRACE(collectives);
    const Settings settings{"train.epochs=1", collectives};
    Settings scaled = settings;
    scaled.push_back(kFits);
    expect_nearly(train(f16(2, 2, scaled)), train(f32(2, 2, settings)));
  }
}

TEST_F(F16Job, LearnsNearlyWhatF32LearnsWithConvolutions) {
  const Settings lenet{"model.name=lenet", "model.units=[1000,1000]", "data.batch=8", "train.steps=8",
                       "evaluate.every_epochs=0"};
  Settings scaled = lenet;
  scaled.push_back(kFits);
  expect_nearly(train(f16(2, 2, scaled)), train(f32(2, 2, lenet)));
}

TEST_F(F16Job, LearnsNearlyWhatF32LearnsUnderOtherPoliciesAndRules) {
  for (Settings settings : std::vector<Settings>{
           {"update.policy=local_sgd", "update.every_steps=4"},
           {"update.policy=block_momentum", "update.block_samples=480"},
           {"update.policy=double_buffered"},
           {"update.accumulate=2"},
           {"optimizer.rule=adam", "optimizer.rate=0.001", "optimizer.clip_norm=1", "update.digest_steps=5"},
           {"optimizer.rule=lamb", "optimizer.rate=0.01"}}) {
    SCOPED_TRACE(settings.front());
    settings.insert(settings.end(), {"train.epochs=1", kOwn});
    const std::vector<double> wanted = train(f32(2, 2, settings));
    settings.push_back(kFits);
    expect_nearly(train(f16(2, 2, settings)), wanted);
  }
}

TEST_F(F16Job, LeavesOutWhatOverflowsAndTellsOfItsScale) {
  Program rtrun{f16(2, 2, {"train.epochs=2", "model.loss_scale_start=16777216", "model.loss_scale_steps=1000"})};
  EXPECT_EQ(rtrun.wait(90s), 0) << rtrun.err();
  EXPECT_THAT(rtrun.err(), HasSubstr("step 0 was left out: the gradient of "));
  EXPECT_THAT(rtrun.err(), HasSubstr("is not finite with a loss scale of 16777216\n"));
  EXPECT_THAT(rtrun.err(), HasSubstr("from step 1 on the loss scale is 8388608\n"));
  EXPECT_THAT(rtrun.err(), Not(HasSubstr("cuda stand-in")));
  const nlohmann::json lines = log();
  ASSERT_GE(lines.size(), 2U);
  EXPECT_GT(lines[0].value("skipped", 0), 0);
  EXPECT_GT(lines.back().value("loss_scale", 0.0), 1.0);
  EXPECT_LT(lines.back().value("loss_scale", 0.0), 16777216.0);
  EXPECT_LT(lines.back().value("main/loss", 100.0), lines[0].value("main/loss", 0.0));
}

/// Local steps that overflow are left out by the ranks; nothing infinite is pushed to shards.
TEST_F(F16Job, LearnsWhereRanksLeaveOutStepsOfTheirOwn) {
  for (const Settings& policy : {Settings{"update.policy=local_sgd", "update.every_steps=4"},
                                 Settings{"update.policy=async"}, Settings{"update.policy=easgd"}}) {
    SCOPED_TRACE(policy.front());
    Settings settings = policy;
    settings.push_back("model.loss_scale_start=16777216");
    const std::vector<double> losses = train(f16(2, 2, settings));
    ASSERT_GE(losses.size(), 2U);
    EXPECT_LT(losses.back(), 0.7 * losses.front());
    EXPECT_LT(log().back().value("loss_scale", 0.0), 16777216.0);
  }
}

TEST_F(F16Job, GoesOnFromACheckpointWithItsScaleAsIfItHadNotEnded) {
  const Settings whole{
      "evaluate.every_epochs=0",         "train.steps=40",          "optimizer.rule=adam", "optimizer.rate=0.01",
      "model.loss_scale_start=16777216", "model.loss_scale_steps=9"};
  const std::vector<double> at_once = train(f16(1, 2, whole));
  const double scale = log().back().value("loss_scale", 0.0);
  Settings first = whole, second = whole;
  first.insert(first.end(), {"train.steps=24", "checkpoint.every_steps=8"});
  second.insert(second.end(), {"checkpoint.every_steps=8", "checkpoint.resume=auto"});
  (void)train(f16(1, 2, first));
  const std::vector<double> again = train(f16(1, 2, second));
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again.back(), at_once.back());
  EXPECT_EQ(log().back().value("loss_scale", 0.0), scale);
}

TEST_F(F16Job, EndsWhereASmallerScaleDoesNotHelp) {
  Program rtrun{f16(1, 1, {"train.epochs=2", "optimizer.rate=1000", "model.loss_scale_start=2"})};
  EXPECT_EQ(rtrun.wait(90s), 1) << rtrun.err();
  EXPECT_THAT(rtrun.err(),
              HasSubstr("is not finite with a loss scale of 1, which is the smallest; lower optimizer.rate"));
}

TEST_F(F16Job, IsRefusedWhereARankIsOnACpu) {
  expect_refused(job(0, 2, on("cpu", {"model.dtype=f16"})), 2, "needs GPUs, and placement.device = \"cpu\"");
  expect_refused(job(0, 2, {"model.dtype=f16"}), 2,
                 "computes on a CPU, and only GPUs compute in f16; write \"bf16\" or \"f32\"");
}

}  // namespace
}  // namespace troupe::testing
