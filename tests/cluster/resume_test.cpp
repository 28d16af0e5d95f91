// Jobs of every policy that lends its stripes are resumed from their own checkpoints.

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>

#include "runtime/checkpoint/store.hpp"
#include "tests/cluster/session_ranks.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::testing {
namespace {

using Settings = std::vector<std::string>;

struct Case {
  const char* name;
  Settings settings;
  bool in_rounds_of_every_update = false;  // gradients travel: losses at any number of ranks follow each other
};
void PrintTo(const Case& given, std::ostream* out) { *out << given.name; }

const Settings kSgd{"optimizer.rule=sgd", "optimizer.rate=0.05"};
const Settings kMomentum{"optimizer.rule=momentum", "optimizer.rate=0.02", "optimizer.momentum=0.9"};
const Settings kAdam{"optimizer.rule=adam", "optimizer.rate=0.01"};

Settings with(const Settings& rule, Settings more) {
  more.insert(more.begin(), rule.begin(), rule.end());
  return more;
}

/// Blocks of four steps, or of three with gradients that are added up.
const std::vector<Case> kCases{
    {"sync", with(kAdam, {}), true},
    {"accumulate", with(kAdam, {"update.accumulate=3"}), true},
    {"double_buffered", with(kAdam, {"update.policy=double_buffered"}), true},
    {"local_sgd", with(kSgd, {"update.policy=local_sgd", "update.every_steps=4"})},
    {"post_local_sgd",
     with(kSgd, {"update.policy=post_local_sgd", "update.every_steps=4", "update.distributed_after=960"})},
    {"model_averaging", with(kSgd, {"update.policy=model_averaging", "update.block_samples=480"})},
    {"block_momentum", with(kMomentum, {"update.policy=block_momentum", "update.block_samples=480"})},
    {"block_momentum_cntk",
     with(kMomentum, {"update.policy=block_momentum", "update.block_samples=480", "update.rule=cntk"})},
    {"diloco", with(kSgd, {"update.policy=diloco", "update.every_steps=4"})},
    {"switch", with(kMomentum, {"update.policy=block_momentum", "update.block_samples=480",
                                "update.switch=[{ at_step = 12, policy = \"diloco\", every_steps = 4 }, "
                                "{ at_step = 20, policy = \"sync\" }, "
                                "{ at_step = 32, policy = \"block_momentum\", block_samples = 480 }]"})},
    {"switch_of_settings", with(kMomentum, {"update.policy=block_momentum", "update.block_samples=480",
                                            "update.switch=[{ at_step = 12, policy = \"block_momentum\", "
                                            "block_samples = 360 }]"})},
    {"averaged", with(kAdam, {"optimizer.ema_decay=0.9"}), true},
    {"averaged_behind", with(kAdam, {"optimizer.ema_decay=0.9", "update.policy=double_buffered"}), true},
};

class Resume : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!ucx_available()) GTEST_SKIP() << "this build has no UCX, over which ranks talk";
  }
  static constexpr std::uint64_t kSteps = 40;

  RanksRan run(std::uint32_t ranks, Settings more, const Spoils& spoils = {}) const {
    return run_ranks(folder_, ranks, with(GetParam().settings, std::move(more)), spoils);
  }
  CheckpointStore store() const { return CheckpointStore((folder_.path() / "run/checkpoints").string()); }
  /// The rest of the run from a checkpoint; what it saves goes elsewhere.
  RanksRan rest_from(const CheckpointId& id, std::uint32_t ranks) const {
    return run(ranks, {"train.steps=40", "checkpoint.every_steps=10", "evaluate.every_epochs=1",
                       "checkpoint.dir=\"" + (folder_.path() / "elsewhere").string() + '"',
                       "checkpoint.resume=\"" + store().folder_of(id) + '"'});
  }
  /// A run to the end, and what it saved on the way, oldest first.
  RanksRan run_to_the_end(const std::string& every_steps = "10") {
    RanksRan whole = run(2, {"train.steps=40", "checkpoint.every_steps=" + every_steps, "evaluate.every_epochs=1"});
    for (const RunResult& result : whole.results) EXPECT_TRUE(result.status.ok()) << result.status.text();
    saved_ = store().list();
    std::reverse(saved_.begin(), saved_.end());
    EXPECT_GE(saved_.size(), 2u);  // one that falls due while the one before is being written is left out
    EXPECT_TRUE(!saved_.empty() && saved_.back().steps == kSteps);
    std::erase_if(saved_, [](const CheckpointId& id) { return id.steps == kSteps; });
    return whole;
  }
  std::vector<float> parameters_of(const CheckpointId& id) const {
    CheckpointReader reader(store(), id);
    std::vector<float> all(6 * 784);
    reader.read({}, "w", CheckpointPart::parameters, 0, std::span(all).first(5 * 784));
    reader.read({}, "b", CheckpointPart::parameters, 0, std::span(all).last(784));
    return all;
  }

  JobFolder folder_;
  std::vector<CheckpointId> saved_;
};

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Policies, Resume, ::testing::ValuesIn(kCases), name_of_case);

TEST_P(Resume, GoesOnWithTheSameBitsOnAsManyRanks) {
  const RanksRan whole = run_to_the_end();
  for (const CheckpointId& id : saved_) {
    const RanksRan rest = rest_from(id, 2);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(rest.results[rank].status.ok()) << rest.results[rank].status.text();
      EXPECT_EQ(rest.began[rank], parameters_of(id)) << "from step " << id.steps;
    }
    EXPECT_EQ(rest.results[0].parameters_hash, whole.results[0].parameters_hash) << "from step " << id.steps;
    ASSERT_FALSE(rest.losses.empty());
    for (const auto& [step, loss] : rest.losses) EXPECT_EQ(loss, whole.losses.at(step)) << "step " << step;
    std::filesystem::remove_all(folder_.path() / "elsewhere");
  }
}

TEST_P(Resume, GoesOnFromTheSameWeightsAtAnotherNumberOfRanks) {
  const RanksRan whole = run_to_the_end();
  ASSERT_FALSE(saved_.empty());
  const CheckpointId& id = saved_[saved_.size() / 2];
  for (const std::uint32_t ranks : {1u, 3u}) {
    const RanksRan rest = rest_from(id, ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      ASSERT_TRUE(rest.results[rank].status.ok()) << rest.results[rank].status.text();
      EXPECT_EQ(rest.began[rank], parameters_of(id));
    }
    EXPECT_EQ(rest.results[0].total.steps, kSteps);
    double worst = 0;
    for (const auto& [step, loss] : rest.losses) worst = std::max(worst, std::abs(loss / whole.losses.at(step) - 1));
    RecordProperty("ranks_" + std::to_string(ranks), std::to_string(worst));
    if (GetParam().in_rounds_of_every_update) {
      EXPECT_LT(worst, 1e-5) << ranks << " ranks";
    }
    std::filesystem::remove_all(folder_.path() / "elsewhere");
  }
}

class ResumeInBlocks : public Resume {};
INSTANTIATE_TEST_SUITE_P(Policies, ResumeInBlocks, ::testing::Values(kCases[1], kCases[3], kCases[6]), name_of_case);

TEST_P(ResumeInBlocks, SavesAtTheEndOfABlockAndSaysWhatTheEvaluationInItFound) {
  run_to_the_end("1000");
  const std::uint64_t block = GetParam().in_rounds_of_every_update ? 3 : 4;
  ASSERT_FALSE(saved_.empty());
  // 2,000 samples by 120: step 17 ends the first epoch.
  EXPECT_EQ(saved_[0].steps, (17 + block - 1) / block * block);
  EXPECT_TRUE(store().read(saved_[0]).test_accuracy.has_value());
}

}  // namespace
}  // namespace troupe::testing
