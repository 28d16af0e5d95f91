// Jobs whose model has synchronized batch norms.

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/model/layer_list.hpp"
#include "tests/cluster/session_threads.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::testing {
namespace {

Graph synchronized_graph(const troupe::Settings& settings, const std::vector<Field>& fields) {
  LayerList net;
  net.add(Conv2d{.filters = 4, .kernel = {5, 5}, .stride = {4, 4}});
  net.add(BatchNorm{.synchronized = true});
  net.add(Relu{});
  net.add(Dense{10});
  return {"synchronized", fields.front().shape, settings.model.dtype, net.finish()};
}

class SynchronizedJob : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!ucx_available()) GTEST_SKIP() << "this build has no UCX, over which ranks talk";
  }

  /// What the ranks' sessions came to, and what they have learnt: 60 samples a step over all ranks, 12 steps.
  std::vector<RunResult> run(std::uint32_t ranks, const std::vector<std::string>& more) {
    std::vector<std::string> settings{"cluster.nodes=\"local:1\"",
                                      "train.deterministic=true",
                                      "faults.dead_ms=20000",
                                      "placement.cores=0",
                                      "data.path=\"" + (folder_.path() / "data").string() + "\"",
                                      "report.dir=\"" + (folder_.path() / "run").string() + "\"",
                                      "data.batch=" + std::to_string(60 / ranks),
                                      "optimizer.rule=sgd",
                                      "optimizer.rate=0.05",
                                      "train.steps=12",
                                      "update.digest_steps=4"};
    settings.insert(settings.end(), more.begin(), more.end());
    return run_sessions(
        ranks,
        [&](std::uint32_t) {
          SessionOptions options{.configuration = read_configuration(folder_.path() / "app.toml", settings)};
          options.graph = synchronized_graph;
          return options;
        },
        [&](Blocking& blocking, Session& session, std::uint32_t rank) {
          RunResult result = session.run(blocking);
          if (rank == 0) learnt_ = session.parameters();
          return result;
        });
  }

  JobFolder folder_;
  std::vector<float> learnt_;  // rank 0's
};

TEST_F(SynchronizedJob, LearnsWithTwoAndThreeRanksWhatOneRankLearnsWithTheWholeBatch) {
  for (const RunResult& result : run(1, {})) ASSERT_TRUE(result.status.ok()) << result.status.text();
  const std::vector<float> alone = learnt_;
  for (const std::uint32_t ranks : {2U, 3U}) {
    const std::vector<RunResult> results = run(ranks, {});
    for (const RunResult& result : results) ASSERT_TRUE(result.status.ok()) << result.status.text();
    for (const RunResult& result : results) EXPECT_EQ(result.parameters_hash, results[0].parameters_hash);
    double distance = 0, size = 0;
    for (std::size_t i = 0; i < alone.size(); ++i) {
      distance += std::pow(learnt_[i] - alone[i], 2);
      size += std::pow(alone[i], 2);
    }
    EXPECT_LE(std::sqrt(distance / size), 1e-4) << ranks << " ranks";
  }
}

TEST_F(SynchronizedJob, HasTheSameBitsInTwoRunsAndWorksWithLocalSteps) {
  const std::vector<RunResult> first = run(2, {"update.policy=local_sgd", "update.every_steps=3"});
  for (const RunResult& result : first) ASSERT_TRUE(result.status.ok()) << result.status.text();
  EXPECT_EQ(run(2, {"update.policy=local_sgd", "update.every_steps=3"})[0].parameters_hash, first[0].parameters_hash);
}

TEST_F(SynchronizedJob, IsRefusedWhereRanksDoNotTakeTheirStepsTogether) {
  for (const RunResult& result : run(2, {"update.policy=async"})) {
    EXPECT_EQ(result.status.code(), Code::invalid);
    EXPECT_THAT(std::string{result.status.text()}, ::testing::HasSubstr("synchronized"));
  }
}

}  // namespace
}  // namespace troupe::testing
