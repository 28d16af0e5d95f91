// Jobs of rtrun whose model has synchronized batch norms, in which ranks wait for each other in the middle of a step.

#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "tests/cluster/job_folder.hpp"
#include "tests/support/network.hpp"

namespace troupe::testing {
namespace {

/// The job's own arguments, and those of the model.
std::vector<std::string> with_norms(std::vector<std::string> arguments) {
  const char* const layers =
      "model.layers=[{kind=\"conv2d\",filters=4,kernel=5,stride=4},{kind=\"batch_norm\",synchronized=true},"
      "\"relu\",{kind=\"dense\",units=10}]";
  for (const char* const setting : {"placement.cores=0", "model.units=[1000,1000]", layers})
    arguments.insert(arguments.end(), {"--set", setting});
  return arguments;
}

class SynchronizedRanks : public ClusterTest, public ::testing::WithParamInterface<int> {};

TEST_P(SynchronizedRanks, OfOneNodeTrainToTheEnd) {
  Program rtrun{folder_.rtrun(
      with_norms({"--set", text("cluster.nodes=\"local:", GetParam(), '"'), "--set", "update.digest_steps=1"}))};
  EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
}

TEST_P(SynchronizedRanks, OfOneNodeEndWith4WhenOneOfThemIsKilled) {
  std::vector<std::string> arguments = JobFolder::endless();
  arguments.insert(arguments.end(), {"--set", text("cluster.nodes=\"local:", GetParam(), '"')});
  Program rtrun{folder_.rtrun(with_norms(arguments))};
  ASSERT_TRUE(rtrun.wait_until(trains, 120s)) << rtrun.out() << rtrun.err();
  const auto ranks = children_of(rtrun.pid());
  ASSERT_EQ(ranks.size(), static_cast<std::size_t>(GetParam()));
  ::kill(ranks.back(), SIGKILL);
  EXPECT_EQ(rtrun.wait(20s), 4) << rtrun.err();
  EXPECT_NE(rtrun.err().find(text("rtrun: error: rank ", GetParam() - 1)), std::string::npos) << rtrun.err();
}

INSTANTIATE_TEST_SUITE_P(Ranks, SynchronizedRanks, ::testing::Values(2, 3));

/// Of two nodes, which are network namespaces.
class SynchronizedNodes : public ClusterTest, public ::testing::WithParamInterface<std::uint32_t> {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
    cluster_ = std::make_unique<NamespaceCluster>(2);
    secret_ = folder_.write_secret("secret", "open sesame");
  }

  /// As many on each node as the parameter says.
  std::vector<std::unique_ptr<Program>> start(const std::vector<std::string>& arguments) const {
    std::vector<std::unique_ptr<Program>> ranks;
    for (std::uint32_t rank = 0; rank < 2 * GetParam(); ++rank) {
      ProgramStart start = folder_.rank(rank, 2 * GetParam(), cluster_->address(0), 29500);
      start.environment.emplace_back("TROUPE_SECRET_FILE", secret_);
      start.arguments.insert(start.arguments.end(), arguments.begin(), arguments.end());
      start.run_by(cluster_->enter(rank / GetParam()));
      ranks.push_back(std::make_unique<Program>(start));
    }
    return ranks;
  }

  std::unique_ptr<NamespaceCluster> cluster_;
  std::string secret_;
};

TEST_P(SynchronizedNodes, TrainToTheEnd) {
  const auto ranks = start(with_norms({"--set", "update.digest_steps=1"}));
  for (const auto& rank : ranks) EXPECT_EQ(rank->wait(60s), 0) << rank->err();
}

TEST_P(SynchronizedNodes, EndWith4WhenARankIsKilled) {
  const auto ranks = start(with_norms(JobFolder::endless()));
  ASSERT_TRUE(ranks[0]->wait_until(trains, 120s)) << ranks[0]->out() << ranks[0]->err();
  ranks.back()->signal(SIGKILL);
  for (std::size_t survivor = 0; survivor + 1 < ranks.size(); ++survivor)
    EXPECT_EQ(ranks[survivor]->wait(20s), 4) << ranks[survivor]->err();
}

INSTANTIATE_TEST_SUITE_P(RanksOfANode, SynchronizedNodes, ::testing::Values(1u, 2u));

}  // namespace
}  // namespace troupe::testing
