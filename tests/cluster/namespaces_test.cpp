// Ranks in network namespaces of their own: other nodes, as far as a job can tell.

#include <signal.h>

#include <cctype>
#include <memory>
#include <sstream>

#include "runtime/base/error.hpp"
#include "tests/cluster/job_folder.hpp"
#include "tests/support/network.hpp"

namespace troupe::testing {
namespace {

class TwoNodes : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
    cluster_ = std::make_unique<NamespaceCluster>(2);
    secret_ = folder_.write_secret("secret", "open sesame");
  }

  std::unique_ptr<Program> start(std::uint32_t rank, const std::vector<std::string>& arguments = {},
                                 std::uint32_t ranks_per_node = 1) const {
    ProgramStart start = folder_.rank(rank, 2 * ranks_per_node, cluster_->address(0), 29500);
    start.environment.emplace_back("TROUPE_SECRET_FILE", secret_);
    start.arguments.insert(start.arguments.end(), arguments.begin(), arguments.end());
    start.run_by(cluster_->enter(rank / ranks_per_node));
    return std::make_unique<Program>(start);
  }
  /// Two on each node.
  std::vector<std::unique_ptr<Program>> start_four(std::vector<std::string> arguments = {}) const {
    std::vector<std::unique_ptr<Program>> ranks;
    arguments.insert(arguments.end(), {"--set", "placement.cores=0"});  // there may be fewer than four
    for (std::uint32_t rank = 0; rank < 4; ++rank) ranks.push_back(start(rank, arguments, 2));
    return ranks;
  }

  std::unique_ptr<NamespaceCluster> cluster_;
  std::string secret_;
};

TEST_F(TwoNodes, TrainOverTheNetwork) {
  const auto second = start(1);
  const auto first = start(0);
  EXPECT_EQ(first->wait(60s), 0) << first->err();
  EXPECT_EQ(second->wait(10s), 0) << second->err();
  EXPECT_NE(first->out().find("Using direct communicator\n"), std::string::npos) << first->out();
}

TEST_F(TwoNodes, OfTwoRanksEachReduceWithinThemselvesFirst) {
  const auto ranks = start_four();
  for (const auto& rank : ranks) EXPECT_EQ(rank->wait(60s), 0) << rank->err();
  EXPECT_NE(ranks[0]->out().find("Using hierarchical communicator\n"), std::string::npos) << ranks[0]->out();
}

TEST_F(TwoNodes, OfTwoRanksEachNameTheOneThatDiedAtEverySurvivor) {
  const auto ranks = start_four(JobFolder::endless());
  ASSERT_TRUE(ranks[0]->wait_until(trains, 30s)) << ranks[0]->out() << ranks[0]->err();
  ranks[3]->signal(SIGKILL);
  for (const std::uint32_t survivor : {0, 1, 2}) EXPECT_EQ(ranks[survivor]->wait(20s), 4) << ranks[survivor]->err();
  EXPECT_NE(ranks[0]->err().find("rank 3"), std::string::npos) << ranks[0]->err() << ranks[1]->err() << ranks[2]->err();
}

TEST_F(TwoNodes, OfTwoRanksEachSwitchBetweenAllPoliciesThatExchangeInRounds) {
  std::string switches = "update.switch=[";
  std::uint64_t step = 0;
  for (const char* policy : {"local_sgd\", every_steps=3", "double_buffered\"", "block_momentum\", block_samples=600",
                             "sync\"", "diloco\", every_steps=4", "model_averaging\", block_samples=400", "sync\""}) {
    step += 6;
    switches += text(step == 6 ? "" : ", ", "{at_step=", step, ", policy=\"", policy, "}");
  }
  for (const char* dtype : {"f32", "bf16"}) {
    const auto ranks = start_four({"--set", switches + "]", "--set", text("train.steps=", step + 6), "--set",
                                   "update.digest_steps=1", "--set", text("model.dtype=\"", dtype, '"')});
    for (const auto& rank : ranks) EXPECT_EQ(rank->wait(60s), 0) << dtype << ": " << rank->err();
  }
}

TEST_F(TwoNodes, OfTwoRanksEachGoOnFromACheckpointOnOneNodeAndTheOtherWayRound) {
  const std::vector<std::string> saving{"--set", "checkpoint.every_steps=5", "--set", "checkpoint.resume=auto"};
  const auto until = [&](std::uint64_t steps) {
    std::vector<std::string> arguments = saving;
    arguments.insert(arguments.end(), {"--set", text("train.steps=", steps)});
    return arguments;
  };
  const auto begun = start_four(until(10));
  for (const auto& rank : begun) EXPECT_EQ(rank->wait(60s), 0) << rank->err();
  std::vector<std::unique_ptr<Program>> two;
  for (const std::uint32_t rank : {0, 1}) two.push_back(start(rank, until(20)));
  for (const auto& rank : two) EXPECT_EQ(rank->wait(60s), 0) << rank->err();
  const auto four = start_four(until(30));
  for (const auto& rank : four) EXPECT_EQ(rank->wait(60s), 0) << rank->err();
}

TEST_F(TwoNodes, NameARankOfTheOtherNodeThatDied) {
  const auto first = start(0, JobFolder::endless());
  const auto second = start(1, JobFolder::endless());
  ASSERT_TRUE(first->wait_until(trains, 30s)) << first->out() << first->err() << second->err();
  second->signal(SIGKILL);
  EXPECT_EQ(first->wait(10s), 4) << first->err();
  for (const char* word : {"rank 1", "node", "step"})
    EXPECT_NE(first->err().find(word), std::string::npos) << first->err();
}

TEST_F(TwoNodes, SwitchBetweenLentAndHostedStripesWithEqualWeights) {
  std::string switches = "update.switch=[";
  std::uint64_t step = 0;
  for (const char* policy : {"async\"", "sync\"", "easgd\", every_steps=2", "local_sgd\", every_steps=3",
                             "ssp\", staleness=1", "double_buffered\"", "ssp\", staleness=0", "sync\""}) {
    step += 6;
    switches += text(step == 6 ? "" : ", ", "{at_step=", step, ", policy=\"", policy, "}");
  }
  for (const char* dtype : {"f32", "bf16"}) {
    const std::vector<std::string> arguments{
        "--set", switches + "]",          "--set", text("train.steps=", step + 6),
        "--set", "update.digest_steps=1", "--set", text("model.dtype=\"", dtype, '"')};
    const auto second = start(1, arguments);
    const auto first = start(0, arguments);
    EXPECT_EQ(first->wait(60s), 0) << dtype << ": " << first->err();
    EXPECT_EQ(second->wait(10s), 0) << dtype << ": " << second->err();
  }
}

/// The lines of a run's table, without the time.
std::vector<std::string> table_of(const std::string& out) {
  std::vector<std::string> lines;
  std::istringstream in{out};
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || std::isdigit(static_cast<unsigned char>(line[0])) == 0) continue;
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(line.substr(0, line.find_last_of(' ')));
  }
  return lines;
}

TEST_F(TwoNodes, TrainAlikeWhetherStripesAreLentOrHostedWithoutStaleness) {
  const std::string switches =
      "update.switch=[{at_step=3, policy=\"ssp\", staleness=0}, {at_step=6, policy=\"sync\"}, "
      "{at_step=8, policy=\"ssp\", staleness=0}, {at_step=13, policy=\"sync\"}]";
  for (const char* dtype : {"f32", "bf16"}) {
    std::vector<std::string> arguments{
        "--set", "train.epochs=4", "--set", "train.deterministic=true", "--set", text("model.dtype=\"", dtype, '"')};
    std::vector<std::vector<std::string>> tables;
    for (const bool switching : {false, true}) {
      if (switching) arguments.insert(arguments.end(), {"--set", switches});
      const auto second = start(1, arguments);
      const auto first = start(0, arguments);
      ASSERT_EQ(first->wait(60s), 0) << first->err();
      ASSERT_EQ(second->wait(10s), 0) << second->err();
      tables.push_back(table_of(first->out()));
    }
    EXPECT_EQ(tables[0].size(), 4u);
    EXPECT_EQ(tables[1], tables[0]) << dtype;
  }
}

TEST_F(TwoNodes, NameARankThatDiedUnderAHostedPolicy) {
  std::vector<std::string> arguments = JobFolder::endless();
  arguments.insert(arguments.end(), {"--set", "update.policy=\"async\""});
  const auto first = start(0, arguments);
  const auto second = start(1, arguments);
  ASSERT_TRUE(first->wait_until(trains, 30s)) << first->out() << first->err() << second->err();
  second->signal(SIGKILL);
  EXPECT_EQ(first->wait(10s), 4) << first->err();
  EXPECT_NE(first->err().find("rank 1"), std::string::npos) << first->err();
}

TEST_F(TwoNodes, NeedASecret) {
  secret_ = folder_.write_secret("empty", "");
  const auto first = start(0);
  EXPECT_EQ(first->wait(20s), 3) << first->err();
  EXPECT_NE(first->err().find("TROUPE_SECRET_FILE"), std::string::npos) << first->err();
}

}  // namespace
}  // namespace troupe::testing
