// Ranks in network namespaces of their own: other nodes, as far as a job can tell.

#include <signal.h>

#include <cctype>
#include <memory>
#include <sstream>

#include "runtime/error.hpp"
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

  std::unique_ptr<Program> start(std::uint32_t rank, const std::vector<std::string>& arguments = {}) const {
    ProgramStart start = folder_.rank(rank, 2, cluster_->address(0), 29500);
    start.environment.emplace_back("TROUPE_SECRET_FILE", secret_);
    start.arguments.insert(start.arguments.end(), arguments.begin(), arguments.end());
    start.run_by(cluster_->enter(rank));
    return std::make_unique<Program>(start);
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
