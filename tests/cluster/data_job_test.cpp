// How jobs get their samples: what happens at an epoch's end, and who reads the data set.

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/random.hpp"
#include "tests/cluster/job_folder.hpp"
#include "tests/support/network.hpp"

namespace troupe::testing {
namespace {

constexpr double kSamples = 2000;  // of the folder's training set

/// What an epoch's line says.
struct Line {
  double loss = 0, accuracy = 0, test_loss = 0, test_accuracy = 0, steps = 0;
  friend bool operator==(const Line&, const Line&) = default;
};

std::vector<Line> lines_of(const std::string& json) {
  std::vector<Line> lines;
  for (std::size_t at = json.find("{\"event\":\"epoch\""); at != json.npos;
       at = json.find("{\"event\":\"epoch\"", at + 1)) {
    const auto number = [&](const std::string& name) {
      return std::strtod(json.c_str() + json.find("\"" + name + "\":", at) + name.size() + 3, nullptr);
    };
    lines.push_back({number("main/loss"), number("main/accuracy"), number("validation/main/loss"),
                     number("validation/main/accuracy"), number("iteration")});
  }
  return lines;
}

class DataJob : public ClusterTest {
 protected:
  /// The lines of a run on this machine.
  std::vector<Line> run(std::uint32_t ranks, const std::vector<std::string>& settings) {
    std::vector<std::string> arguments{"--json"};
    const auto set = [&](const std::string& setting) { arguments.insert(arguments.end(), {"--set", setting}); };
    set("cluster.nodes=\"local:" + std::to_string(ranks) + "\"");
    set("data.batch=37");
    set("placement.cores=0");
    for (const std::string& setting : settings) set(setting);
    Program rtrun{folder_.rtrun(arguments)};
    EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
    return lines_of(rtrun.out());
  }
};

/// That the accuracy is that of so many samples.
void expect_accuracy_of(double samples, const Line& line) {
  const double correct = line.accuracy * samples;
  EXPECT_NEAR(correct, std::round(correct), 1e-6) << line.accuracy;
}

TEST_F(DataJob, EndsExactEpochsWithTheirLastSampleThoughSomeRankHasNone) {
  const std::vector<Line> lines = run(3, {"data.scatter=exact", "train.epochs=2"});  // 18 steps of 111, and 2 samples
  ASSERT_EQ(lines.size(), 2u);
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    EXPECT_EQ(lines[epoch].steps, 19.0 * static_cast<double>(epoch + 1));
    expect_accuracy_of(kSamples, lines[epoch]);
    const double tested = lines[epoch].test_accuracy * 200;  // by ranks with 66, 67 and 67 of them
    EXPECT_NEAR(tested, std::round(tested), 1e-6);
  }
}

TEST_F(DataJob, FillsEqualEpochsUpUntilAllRanksHaveAsMany) {
  const std::vector<Line> lines = run(3, {"data.scatter=equal", "train.epochs=2"});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].steps, 38);
  for (const Line& line : lines) expect_accuracy_of(kSamples + 1, line);
}

TEST_F(DataJob, EndsAnExactEpochWithItsLastSampleAlsoWhenItGoesOnAtAnotherWorldSize) {
  const std::vector<std::string> exact{"data.scatter=exact", "train.epochs=2"};
  auto first = exact;
  first.insert(first.end(), {"train.steps=7", "checkpoint.every_steps=1000"});
  run(3, first);  // 777 samples; it saves when it ends
  auto second = exact;
  second.emplace_back("checkpoint.resume=auto");
  const std::vector<Line> lines = run(2, second);  // 1,223 are left of the first epoch: 16 steps of 74, and 39 samples
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].steps, 7 + 17);
  EXPECT_EQ(lines[1].steps, 7 + 17 + 28);
  for (const Line& line : lines) expect_accuracy_of(kSamples, line);
}

TEST_F(DataJob, TrainsAlikeWithOneLoaderForAllRanksOfItsNode) {
  const std::vector<std::string> settings{"train.epochs=2", "train.deterministic=true", "data.scatter=exact"};
  auto one = settings;
  one.emplace_back("data.loader=node");
  const std::vector<Line> lines = run(3, one);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines, run(3, settings));
}

TEST_F(DataJob, TrainsWithOneLoaderAndSharesBySpeed) {
  EXPECT_EQ(run(2, {"train.epochs=2", "data.loader=node", "data.scatter=exact", "placement.split=measured"}).size(),
            2u);
}

TEST_F(DataJob, HasALoaderOnEachOfSeveralNodes) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  const std::string secret = folder_.write_secret("secret", "open sesame");
  std::vector<std::vector<Line>> lines;
  for (const std::string loader : {"node", "rank"}) {
    std::vector<std::unique_ptr<Program>> ranks;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      ProgramStart start = folder_.rank(rank, 4, nodes.address(0), 29500);
      start.environment.emplace_back("TROUPE_SECRET_FILE", secret);
      start.arguments.insert(start.arguments.end(),
                             {"--json", "--set", "data.loader=" + loader, "--set", "data.batch=37", "--set",
                              "placement.cores=0", "--set", "train.epochs=2", "--set", "train.deterministic=true"});
      start.run_by(nodes.enter(rank / 2));
      ranks.push_back(std::make_unique<Program>(start));
    }
    for (auto& rank : ranks) EXPECT_EQ(rank->wait(60s), 0) << rank->err();
    lines.push_back(lines_of(ranks[0]->out()));
  }
  EXPECT_EQ(lines[0].size(), 2u);
  EXPECT_EQ(lines[0], lines[1]);
}

/// Words of a small language, one behind the other.
std::string text_of_words() {
  constexpr const char* kWords[]{"actors ", "send ", "tensors ", "through ", "lanes ", "and ", "never ", "wait.\n"};
  std::string words;
  for (std::uint64_t i = 0; words.size() < 40'000; ++i) words += kWords[random_below(7, i, 8)];
  return words;
}

/// Of a byte, in nats, for who knows how often each occurs.
double entropy_of(const std::string& words) {
  std::map<char, double> counts;
  for (const char byte : words) ++counts[byte];
  double entropy = 0;
  for (const auto& [byte, count] : counts)
    entropy -= count / static_cast<double>(words.size()) * std::log(count / static_cast<double>(words.size()));
  return entropy;
}

TEST_F(DataJob, LearnsATextFarBetterThanTheFrequenciesOfItsBytes) {
  const std::string words = text_of_words();
  const auto file = folder_.path() / "words.txt";
  std::ofstream{file} << words;
  const std::vector<Line> lines =
      run(2, {"data.source=text", "data.path=\"" + file.string() + "\"", "data.length=32", "data.batch=8",
              "model.name=gpt", "model.units=[1000, 1000]", "model.depth=1", "model.width=32", "model.heads=2",
              "optimizer.rule=adamw", "optimizer.rate={base=0.005,warmup_epochs=0.2}", "train.epochs=3"});
  std::filesystem::remove(file);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_GT(entropy_of(words), 2.5);
  EXPECT_LT(lines.back().test_loss, 1.2) << "the words themselves have a third of a nat a byte";
  EXPECT_LT(lines.back().test_loss, lines.front().test_loss);
  EXPECT_GT(lines.back().test_accuracy, 0.6);
}

}  // namespace
}  // namespace troupe::testing
