// The running statistics of layers in jobs: the same at every rank, in checkpoints, and after a resume in mid-epoch.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "runtime/checkpoint/store.hpp"
#include "runtime/model/layer_list.hpp"
#include "tests/cluster/session_threads.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::testing {
namespace {

using Given = std::vector<std::string>;

struct StatisticsCase {
  const char* name;
  Given settings;
};
void PrintTo(const StatisticsCase& given, std::ostream* out) { *out << given.name; }

Graph normalized(const troupe::Settings& settings, const std::vector<Field>& fields) {
  LayerList net;
  net.add(Conv2d{.filters = 4, .kernel = {5, 5}, .stride = {4, 4}});
  net.add(BatchNorm{});
  net.add(Relu{});
  net.add(Dense{10});
  return {"normalized", fields.front().shape, settings.model.dtype, net.finish()};
}

class RunningStatistics : public ::testing::TestWithParam<StatisticsCase> {
 protected:
  void SetUp() override {
    if (!ucx_available()) GTEST_SKIP() << "this build has no UCX, over which ranks talk";
  }

  /// Of two ranks with 40 samples a step each, all of 2,000 in 25 steps.
  std::vector<RunResult> run(Given more) const {
    Given settings{"cluster.nodes=\"local:1\"",
                   "train.deterministic=true",
                   "faults.dead_ms=20000",
                   "placement.cores=0",
                   "data.path=\"" + (folder_.path() / "data").string() + "\"",
                   "report.dir=\"" + (folder_.path() / "run").string() + "\"",
                   "data.batch=40",
                   "checkpoint.keep=100",
                   "optimizer.rule=momentum",
                   "optimizer.rate=0.05",
                   "optimizer.weight_decay=0.001",
                   "optimizer.no_decay=[\"*\"]",
                   "train.steps=12",
                   "update.digest_steps=4"};
    settings.insert(settings.end(), GetParam().settings.begin(), GetParam().settings.end());
    settings.insert(settings.end(), more.begin(), more.end());
    return run_sessions(
        2,
        [&](std::uint32_t) {
          SessionOptions options{.configuration = read_configuration(folder_.path() / "app.toml", settings)};
          options.graph = normalized;
          return options;
        },
        run_to_the_end);
  }
  CheckpointStore store() const { return CheckpointStore((folder_.path() / "run/checkpoints").string()); }
  std::vector<float> saved(const CheckpointId& id, std::string_view tensor) const {
    CheckpointReader reader(store(), id);
    std::vector<float> values(4);
    reader.read({}, tensor, CheckpointPart::parameters, 0, values);
    return values;
  }

  JobFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(
    Policies, RunningStatistics,
    ::testing::Values(StatisticsCase{"sync", {}}, StatisticsCase{"accumulate", {"update.accumulate=3"}},
                      StatisticsCase{"double_buffered", {"update.policy=double_buffered"}},
                      StatisticsCase{"local_sgd",
                                     {"update.policy=local_sgd", "update.every_steps=3", "optimizer.rule=sgd"}},
                      StatisticsCase{"block_momentum", {"update.policy=block_momentum", "update.block_samples=240"}},
                      StatisticsCase{"diloco", {"update.policy=diloco", "update.every_steps=3", "optimizer.rule=sgd"}},
                      StatisticsCase{"averaged", {"optimizer.ema_decay=0.9", "evaluate.every_epochs=1"}},
                      StatisticsCase{"bf16", {"model.dtype=bf16"}}),
    [](const auto& of) { return std::string{of.param.name}; });

TEST_P(RunningStatistics, AreTheSameAtAllRanksAndAfterAResumeInMidEpoch) {
  const std::vector<RunResult> whole = run({"checkpoint.every_steps=6"});
  for (const RunResult& result : whole) ASSERT_TRUE(result.status.ok()) << result.status.text();
  EXPECT_EQ(whole[0].parameters_hash, whole[1].parameters_hash);
  const std::vector<CheckpointId> all = store().list();
  const auto middle = std::ranges::find(all, 6u, &CheckpointId::steps);
  const auto end = std::ranges::find(all, 12u, &CheckpointId::steps);
  ASSERT_NE(middle, all.end());
  ASSERT_NE(end, all.end());
  const std::vector<float> mean = saved(*middle, "batch_norm_1.running_mean");
  EXPECT_NE(mean, saved(*end, "batch_norm_1.running_mean"));
  EXPECT_TRUE(std::ranges::none_of(mean, [](float value) { return value == 0; }));
  for (const float variance : saved(*end, "batch_norm_1.running_var")) EXPECT_GT(variance, 0);

  const std::vector<RunResult> rest = run({"checkpoint.dir=\"" + (folder_.path() / "elsewhere").string() + '"',
                                           "checkpoint.resume=\"" + store().folder_of(*middle) + '"'});
  for (const RunResult& result : rest) ASSERT_TRUE(result.status.ok()) << result.status.text();
  EXPECT_EQ(rest[0].parameters_hash, whole[0].parameters_hash);
}

}  // namespace
}  // namespace troupe::testing
