// The same global batches at any world size, in an arena and over a network, give the same training up to the order of
// summation; and the same bits when run twice.

#include <stdlib.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>

#include "runtime/data/find_data.hpp"
#include "tests/cluster/job_folder.hpp"
#include "tests/support/control_group.hpp"
#include "tests/support/network.hpp"

namespace troupe::testing {
namespace {

struct Trained {
  std::vector<double> losses;
  std::vector<float> parameters;
};

/// Runs the probe with a global batch of 200, unless another is said, on the example's network and on MNIST or, without
/// it, the generated digits: the folder's own images are learnt so fast that small losses differ in their digits.
class Agreement : public ClusterTest {
 protected:
  static void SetUpTestSuite() {
    if (std::getenv("TROUPE_DATA") != nullptr) return;
    std::string pattern = ::testing::TempDir() + "/troupe-digits-XXXXXX";
    cache_ = ::mkdtemp(pattern.data());
    find_data({.source = "generated", .cache = (cache_ / "troupe").string()});  // once, and not by every rank
  }
  static void TearDownTestSuite() {
    if (!cache_.empty()) std::filesystem::remove_all(cache_);
  }

  /// Of several nodes, `ranks_per_node` on each but the last, which may have fewer.
  Trained train(std::uint32_t ranks, const std::vector<std::string>& settings, const NamespaceCluster* nodes = nullptr,
                std::uint32_t ranks_per_node = 1) {
    const std::string file = folder_.path() / "probe";
    const std::string secret = folder_.write_secret("secret", "open sesame");
    const std::uint16_t port = nodes != nullptr ? 29600 : free_port();
    std::vector<std::unique_ptr<Program>> programs;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      ProgramStart start = folder_.rank(rank, ranks, nodes != nullptr ? nodes->address(0) : "127.0.0.1", port);
      start.environment.emplace_back("TROUPE_SECRET_FILE", secret);
      start.arguments = {PROBE_PROGRAM, file, "evaluate.every_epochs=0",
                         "data.batch=" + std::to_string(global_batch_ / ranks)};
      if (cache_.empty()) {
        std::erase(start.unset, "TROUPE_DATA");
      } else {
        start.arguments.emplace_back("data.source=generated");
        std::erase_if(start.environment, [](const auto& entry) { return entry.first == "XDG_CACHE_HOME"; });
        start.environment.emplace_back("XDG_CACHE_HOME", cache_.string());
      }
      if (ranks == 1) start.arguments.push_back("placement.cores=1");  // one thread, as each of several ranks has
      start.arguments.insert(start.arguments.end(), settings.begin(), settings.end());
      if (rank == slow_rank_) start.run_by(slow_group_->enter());
      if (nodes != nullptr) start.run_by(nodes->enter(rank / ranks_per_node));
      programs.push_back(std::make_unique<Program>(start));
    }
    for (auto& program : programs) EXPECT_EQ(program->wait(90s), 0) << program->err();
    said_ = programs.front()->out();
    return read(file);
  }

  /// Compares a run with `deterministic` settings that is interrupted and resumed at 1, 2 and 3 ranks with one that is
  /// not interrupted.
  void expect_agreement_after_a_resume(const std::vector<std::string>& deterministic) {
    global_batch_ = 120;
    const auto job = [&](std::uint32_t ranks, std::vector<std::string> settings) {
      settings.insert(settings.end(), deterministic.begin(), deterministic.end());
      return train(ranks, settings);
    };
    const Trained uninterrupted = job(2, {"train.steps=60"});
    job(2, {"train.steps=40", "checkpoint.every_steps=1000"});  // it saves when it ends
    ASSERT_EQ(uninterrupted.losses.size(), 60u);
    const std::vector<double> expected(uninterrupted.losses.end() - 20, uninterrupted.losses.end());
    for (const std::uint32_t ranks : {2u, 1u, 3u}) {
      const Trained resumed = job(ranks, {"train.steps=60", "checkpoint.resume=auto"});
      if (ranks == 2) {
        EXPECT_EQ(resumed.losses, expected);
        EXPECT_EQ(resumed.parameters, uninterrupted.parameters);
      }
      const double distance = loss_distance(resumed, {expected, {}});
      std::cout << ranks << " ranks: " << distance << '\n';
      EXPECT_LT(distance, 1e-5) << ranks << " ranks";
    }
    std::filesystem::remove_all(folder_.path() / "run" / "checkpoints");
  }

  std::uint32_t global_batch_ = 200;
  std::string said_;  // by rank 0, in the last run
  std::unique_ptr<CpuQuota> slow_group_;
  std::optional<std::uint32_t> slow_rank_;     // who is in it
  static inline std::filesystem::path cache_;  // of the digits; empty: there is MNIST

  static Trained read(const std::string& file) {
    std::ifstream in{file, std::ios::binary};
    std::uint64_t steps = 0;
    in.read(reinterpret_cast<char*>(&steps), sizeof steps);
    Trained trained;
    trained.losses.resize(in ? steps : 0);
    in.read(reinterpret_cast<char*>(trained.losses.data()), static_cast<std::streamsize>(steps * sizeof(double)));
    float value = 0;
    while (in.read(reinterpret_cast<char*>(&value), sizeof value)) trained.parameters.push_back(value);
    std::filesystem::remove(file);
    return trained;
  }

  /// The largest relative difference of the losses.
  static double loss_distance(const Trained& a, const Trained& b) {
    double worst = a.losses.size() == b.losses.size() && !a.losses.empty() ? 0 : INFINITY;
    for (std::size_t i = 0; i < std::min(a.losses.size(), b.losses.size()); ++i)
      worst = std::max(worst, std::abs(a.losses[i] - b.losses[i]) / std::abs(b.losses[i]));
    return worst;
  }
  /// Relative L2 distance of the parameters.
  static double parameter_distance(const Trained& a, const Trained& b) {
    if (a.parameters.size() != b.parameters.size() || a.parameters.empty()) return INFINITY;
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < a.parameters.size(); ++i) {
      difference += std::pow(double{a.parameters[i]} - b.parameters[i], 2);
      norm += std::pow(double{b.parameters[i]}, 2);
    }
    return std::sqrt(difference / norm);
  }
};

/// With ReLU, two runs whose sums differ in the last bits may differ in a neuron that is active in one of them alone,
/// and Adam makes a whole step of its gradient, however small that is.
const std::string kSmooth =
    R"(model.layers=[{kind="dense",units=200},"tanh",{kind="dense",units=100},"tanh",{kind="dense",units=10}])";
const std::vector<std::string> kAdam{"train.steps=20", kSmooth};
const std::vector<std::string> kSgd{"train.steps=200", "optimizer.rule=sgd", "optimizer.rate=0.01"};
const std::vector<std::string> kShortSgd{"train.steps=100", "optimizer.rule=sgd", "optimizer.rate=0.01"};

TEST_F(Agreement, OfLossesWithAdamAtAnyNumberOfRanks) {
  const Trained one = train(1, kAdam);
  for (const std::uint32_t ranks : {2u, 4u}) {
    const double distance = loss_distance(train(ranks, kAdam), one);
    RecordProperty("ranks_" + std::to_string(ranks), std::to_string(distance));
    EXPECT_LT(distance, 1e-5) << ranks << " ranks";
  }
}

TEST_F(Agreement, OfLossesAndParametersWithSgdAtAnyNumberOfRanks) {
  const Trained one = train(1, kSgd);
  const Trained one_short = train(1, kShortSgd);
  for (const std::uint32_t ranks : {2u, 4u}) {
    EXPECT_LT(loss_distance(train(ranks, kSgd), one), 1e-4) << ranks << " ranks";
    EXPECT_LT(parameter_distance(train(ranks, kShortSgd), one_short), 5e-5) << ranks << " ranks";
  }
}

TEST_F(Agreement, OfTwoNodesWithOneProcess) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  EXPECT_LT(loss_distance(train(2, kAdam, &nodes), train(1, kAdam)), 1e-5);
  EXPECT_LT(loss_distance(train(2, kSgd, &nodes), train(1, kSgd)), 1e-4);
  EXPECT_LT(parameter_distance(train(2, kShortSgd, &nodes), train(1, kShortSgd)), 5e-5);
}

TEST_F(Agreement, OfNodesOfSeveralRanksWithOneProcess) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  const Trained adam = train(1, kAdam), sgd = train(1, kShortSgd);
  EXPECT_LT(loss_distance(train(4, kAdam, &nodes, 2), adam), 1e-5);
  EXPECT_LT(parameter_distance(train(4, kShortSgd, &nodes, 2), sgd), 5e-5);
  // A node of two ranks, and one of one rank, which is also the counterpart of the first node's second rank.
  global_batch_ = 300;
  EXPECT_LT(loss_distance(train(3, kAdam, &nodes, 2), train(1, kAdam)), 1e-5);
}

TEST_F(Agreement, OfNodesOfSeveralRanksHoweverTheirGradientsAreJudgedAndSent) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  std::vector<std::string> judged = kAdam;
  judged.emplace_back("optimizer.clip_norm=0.5");
  judged.emplace_back("train.deterministic=true");
  judged.emplace_back("update.digest_steps=1");
  const Trained clipped = train(4, judged, &nodes, 2);
  EXPECT_LT(loss_distance(clipped, train(1, judged)), 1e-5);
  EXPECT_EQ(train(4, judged, &nodes, 2).parameters, clipped.parameters) << "deterministic";
  std::vector<std::string> groups = kAdam;
  groups.emplace_back("update.group=[{ name = \"biases\", match = \"*.bias\" }]");
  EXPECT_LT(loss_distance(train(4, groups, &nodes, 2), train(1, groups)), 1e-5);
  std::vector<std::string> rounded = kAdam;
  rounded.emplace_back("update.compress=\"bf16\"");
  const double distance = loss_distance(train(4, rounded, &nodes, 2), train(1, kAdam));
  EXPECT_GT(distance, 1e-5);
  EXPECT_LT(distance, 0.02);
}

TEST_F(Agreement, OfParameterGroupsOnTwoNodesWithOneGroup) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  const std::vector<std::string> one{"train.steps=20", "train.deterministic=true"};
  std::vector<std::string> groups = one, rounded = one;
  groups.emplace_back(
      "update.group=[{ name = \"biases\", match = \"*.bias\" }, { name = \"last\", match = \"l3.weight\" }]");
  rounded.emplace_back("update.compress=\"bf16\"");
  const Trained expected = train(2, one, &nodes);
  EXPECT_EQ(train(2, groups, &nodes).losses, expected.losses);
  const double distance = loss_distance(train(2, rounded, &nodes), expected);
  std::cout << "rounded: " << distance << '\n';
  EXPECT_GT(distance, 0);
  EXPECT_LT(distance, 0.02);
}

TEST_F(Agreement, OfLossesWithABatchScheduleAtAnyNumberOfRanks) {
  // 60,000 samples: 12 steps of 200, then of 400.
  const std::vector<std::string> one_rank{"train.steps=20", kSmooth, "data.batch=[[200, 0.04], [400, 0]]"};
  const std::vector<std::string> two_ranks{"train.steps=20", kSmooth, "data.batch=[[100, 0.04], [200, 0]]"};
  const Trained one = train(1, one_rank);
  EXPECT_LT(loss_distance(train(2, two_ranks), one), 1e-5);
  EXPECT_GT(loss_distance(train(2, kAdam), one), 1e-3);  // a batch that stays trains otherwise
}

TEST_F(Agreement, OfLossesWithAMeasuredSplitWhenOneRankIsSlow) {
  if (const std::string reason = CpuQuota::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  slow_group_ = std::make_unique<CpuQuota>(0.15);
  const std::vector<std::string> settings{"train.steps=60", "optimizer.rule=sgd", "optimizer.rate=0.01"};
  std::vector<std::string> measured = settings;
  measured.emplace_back("placement.split=\"measured\"");
  const Trained equal = train(2, settings);
  slow_rank_ = 1;
  EXPECT_LT(loss_distance(train(2, measured), equal), 1e-5);
  EXPECT_NE(said_.find("on the ranks take "), said_.npos) << said_;
  EXPECT_NE(said_.find("the others waited for rank 1"), said_.npos) << said_;
}

TEST_F(Agreement, OfLossesAtAnyNumberOfRanksThatGoOnFromACheckpoint) {
  expect_agreement_after_a_resume({"optimizer.rule=adam", "optimizer.rate=0.001", "train.deterministic=true", kSmooth});
}

/// The dropped elements depend on the sample, not on the place and time of the computation.
TEST_F(Agreement, OfLossesWithDropoutAtAnyNumberOfRanksThatGoOnFromACheckpoint) {
  expect_agreement_after_a_resume(
      {"optimizer.rule=adam", "optimizer.rate=0.001", "train.deterministic=true",
       R"(model.layers=[{kind="dense",units=48},"relu",{kind="dropout",rate=0.5},{kind="dense",units=10}])"});
}

TEST_F(Agreement, OfTwoDeterministicRunsToTheBit) {
  std::vector<std::string> settings = kAdam;
  settings.push_back("train.deterministic=true");
  for (const char* dtype : {"model.dtype=f32", "model.dtype=bf16"}) {
    settings.push_back(dtype);
    const Trained first = train(2, settings);
    const Trained second = train(2, settings);
    EXPECT_FALSE(first.parameters.empty());
    EXPECT_EQ(first.losses, second.losses) << dtype;
    EXPECT_EQ(first.parameters, second.parameters) << dtype;
    settings.pop_back();
  }
}

}  // namespace
}  // namespace troupe::testing
