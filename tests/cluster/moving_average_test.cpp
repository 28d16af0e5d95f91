// The moving average of the weights in jobs: in checkpoints, after a resume at any number of ranks, and in evaluations;
// and jobs that start from ONNX files.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runtime/checkpoint/store.hpp"
#include "runtime/model/graph_text.hpp"
#include "runtime/onnx/onnx_export.hpp"
#include "tests/cluster/session_threads.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::testing {
namespace {

using Given = std::vector<std::string>;

class MovingAverage : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kSteps = 25;  // an epoch of 2,000 samples, of which a step has 80

  void SetUp() override {
    if (!ucx_available()) GTEST_SKIP() << "this build has no UCX, over which ranks talk";
  }

  struct Ran {
    std::vector<RunResult> results;
    double test_loss = 0;  // of the last line
  };
  Ran run(std::uint32_t ranks, const Given& more) const {
    class Lines final : public SessionListener {
     public:
      explicit Lines(double& loss) : loss_(loss) {}
      void epoch(const EpochReport& line) override { loss_ = line.test_loss.value_or(0); }

     private:
      double& loss_;
    };
    Given settings{"cluster.nodes=\"local:1\"",
                   "train.deterministic=true",
                   "faults.dead_ms=20000",
                   "placement.cores=0",
                   "data.path=\"" + (folder_.path() / "data").string() + "\"",
                   "report.dir=\"" + (folder_.path() / "run").string() + "\"",
                   "data.batch=" + std::to_string(80 / ranks),
                   "checkpoint.keep=100",
                   "checkpoint.every_steps=1000",
                   "optimizer.rule=momentum",
                   "optimizer.rate=0.05",
                   "train.steps=" + std::to_string(kSteps),
                   "evaluate.every_epochs=1"};
    settings.insert(settings.end(), more.begin(), more.end());
    Ran ran;
    Lines lines{ran.test_loss};
    ran.results = run_sessions(
        ranks,
        [&](std::uint32_t rank) {
          SessionOptions options{.configuration = read_configuration(folder_.path() / "app.toml", settings)};
          if (rank == 0) options.listener = &lines;
          return options;
        },
        run_to_the_end);
    for (const RunResult& result : ran.results) EXPECT_TRUE(result.status.ok()) << result.status.text();
    return ran;
  }

  CheckpointStore store(const char* name) const { return CheckpointStore((folder_.path() / name).string()); }
  std::string dir(const char* name) const { return "checkpoint.dir=\"" + (folder_.path() / name).string() + '"'; }
  /// Of the newest checkpoint, in the order of the model's parameters.
  static std::vector<std::vector<float>> numbers_of(const CheckpointStore& from, CheckpointPart part) {
    CheckpointReader reader(from, from.list().front());
    std::vector<std::vector<float>> all;
    const Graph graph = parse_graph(reader.manifest().model);
    for (const Parameter& parameter : graph.parameters()) {
      all.emplace_back(parameter.count_elements());
      reader.read({}, parameter.name, part, 0, all.back());
    }
    return all;
  }
  std::string write_model(const CheckpointStore& from, CheckpointPart part) const {
    const std::string path = (folder_.path() / "model.onnx").string();
    const Graph graph = parse_graph(CheckpointReader(from, from.list().front()).manifest().model);
    const std::vector<std::vector<float>> numbers = numbers_of(from, part);
    std::ofstream file{path, std::ios::binary};
    write_onnx(
        graph, [&](std::size_t p, std::span<float> to) { std::ranges::copy(numbers[p], to.begin()); },
        [&](std::span<const std::byte> bytes) {
          file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        });
    return path;
  }

  JobFolder folder_;
};

TEST_F(MovingAverage, IsSavedAndRestoredAtAnyNumberOfRanks) {
  const Given averages{"optimizer.ema_decay=0.9", "model.units=[20]"};
  const auto with = [&](Given more) {
    more.insert(more.end(), averages.begin(), averages.end());
    return more;
  };
  const Ran whole = run(2, with({"checkpoint.every_steps=10", dir("whole")}));
  const std::vector<CheckpointId> saved = store("whole").list();
  const auto middle = std::ranges::find(saved, 10U, &CheckpointId::steps);
  ASSERT_NE(middle, saved.end());
  const std::string from = "checkpoint.resume=\"" + store("whole").folder_of(*middle) + '"';
  const auto average = numbers_of(store("whole"), CheckpointPart::average);
  EXPECT_NE(average, numbers_of(store("whole"), CheckpointPart::parameters));

  const Ran plain = run(2, {"model.units=[20]", dir("plain")});
  EXPECT_EQ(plain.results[0].parameters_hash, whole.results[0].parameters_hash) << "training does not read the average";
  EXPECT_NE(plain.test_loss, whole.test_loss) << "evaluations do";

  for (const std::uint32_t ranks : {2, 1, 4}) {
    SCOPED_TRACE(ranks);
    std::filesystem::remove_all(folder_.path() / "rest");
    const Ran rest = run(ranks, with({from, dir("rest")}));
    const auto found = numbers_of(store("rest"), CheckpointPart::average);
    if (ranks == 2) {
      EXPECT_EQ(found, average);
      EXPECT_EQ(rest.test_loss, whole.test_loss);
    }
    for (std::size_t p = 0; p < average.size(); ++p)
      for (std::size_t i = 0; i < average[p].size(); ++i)
        ASSERT_NEAR(found[p][i], average[p][i], 1e-4) << p << ' ' << i;
  }
}

TEST_F(MovingAverage, IsWhatEvaluationsReadAsAModelThatStartsFromAFileShows) {
  const Ran averaged = run(2, {"optimizer.ema_decay=0.9", "model.units=[20]", dir("averaged")});
  const std::string file = write_model(store("averaged"), CheckpointPart::average);
  const Ran still = run(2, {"model.onnx=\"" + file + '"', "model.units=[1000, 1000]", "optimizer.rule=sgd",
                            "optimizer.rate=1e-30", dir("still")});
  EXPECT_EQ(still.test_loss, averaged.test_loss);
  EXPECT_EQ(numbers_of(store("still"), CheckpointPart::parameters),
            numbers_of(store("averaged"), CheckpointPart::average));
}

TEST_F(MovingAverage, BeginsAsTheWeightsOfACheckpointThatHasNone) {
  run(2, {"model.units=[20]", "train.steps=5", dir("plain")});
  const std::string from = "checkpoint.resume=\"" + store("plain").folder_of(store("plain").list().front()) + '"';
  run(2, {"model.units=[20]", "optimizer.ema_decay=0.9", "train.steps=6", from, dir("next")});
  const auto before = numbers_of(store("plain"), CheckpointPart::parameters),
             weights = numbers_of(store("next"), CheckpointPart::parameters),
             average = numbers_of(store("next"), CheckpointPart::average);
  const auto share = static_cast<float>(1 - 7.0 / 16);  // of the sixth update
  for (std::size_t p = 0; p < before.size(); ++p)
    for (std::size_t i = 0; i < before[p].size(); ++i)
      ASSERT_EQ(average[p][i], before[p][i] + share * (weights[p][i] - before[p][i])) << p << ' ' << i;
}

class OnnxJob : public MovingAverage {};

TEST_F(OnnxJob, StartsFromAFileWithLayersOfItsOwnBehind) {
  run(1, {"model.units=[20]", dir("first")});
  const std::string onnx = "model.onnx=\"" + write_model(store("first"), CheckpointPart::parameters) + '"';
  const Given still{onnx, "model.units=[1000, 1000]", "optimizer.rule=sgd", "optimizer.rate=1e-30", dir("second")};
  Given settings = still;
  settings.push_back("model.layers=[\"relu\", {kind = \"dense\", units = 10, name = \"head\"}]");
  run(2, settings);
  std::vector<std::vector<float>> numbers = numbers_of(store("second"), CheckpointPart::parameters);
  const auto of_file = numbers_of(store("first"), CheckpointPart::parameters);
  ASSERT_EQ(numbers.size(), of_file.size() + 2);
  const std::vector<float> head = numbers[of_file.size()];
  EXPECT_EQ(head.size(), 100U);
  EXPECT_NE(head, std::vector<float>(100)) << "it starts as in any model";
  numbers.resize(of_file.size());
  EXPECT_EQ(numbers, of_file);
}

}  // namespace
}  // namespace troupe::testing
