#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/session/run_log.hpp"
#include "tools/rtrun/console.hpp"
#include "tools/rtrun/progress_text.hpp"
#include "tools/rtrun/table.hpp"
#include "tools/terminal/terminal.hpp"

namespace troupe::rtrun {
namespace {

EpochReport first_epoch() {
  return {.epoch = 1,
          .steps = 300,
          .loss = 0.2240019,
          .accuracy = 0.9335,
          .test_loss = 0.1023219,
          .test_accuracy = 0.9695,
          .elapsed_s = 17.134112};
}

Plan two_ranks() {
  Plan plan;
  plan.batch = 100;
  plan.train_samples = 60000;
  plan.steps = 6000;
  plan.ranks.resize(2);
  for (RankPlan& rank : plan.ranks) rank.device = "cpu";
  return plan;
}

/// A console with a report folder of its own that writes into a string.
class ConsoleTest : public ::testing::Test {
 protected:
  ConsoleTest() {
    std::string pattern = ::testing::TempDir() + "/console-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    settings_.report.dir = folder_;
  }
  ~ConsoleTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  Settings settings_;
  std::ostringstream out_;
};

TEST(PrintReport, PrintsChainersHeader) {
  EXPECT_EQ(table_header(),
            "epoch       main/loss   validation/main/loss  main/accuracy  validation/main/accuracy  elapsed_time\n");
}

TEST(PrintReport, AlignsARowUnderTheHeaderWithSixDigits) {
  EXPECT_EQ(table_row(first_epoch()),
            "1           0.224002    0.102322              0.9335         0.9695                    17.1341       \n");
}

TEST(PrintReport, LeavesTheColumnsOfAnEpochWithoutEvaluationEmpty) {
  EpochReport report = first_epoch();
  report.test_loss.reset();
  report.test_accuracy.reset();
  EXPECT_EQ(table_row(report),
            "1           0.224002                          0.9335                                   17.1341       \n");
}

TEST(PrintReport, LeavesTheColumnsOfAnEpochInWhichNoRoundHasEndedEmpty) {
  EpochReport report = first_epoch();
  report.counted = false;
  EXPECT_EQ(table_row(report),
            "1                       0.102322                             0.9695                    17.1341       \n");
}

TEST(PrintReport, PrintsTheLinesOfChainerMNsExampleBeforeTheTable) {
  EXPECT_EQ(job_header(Settings{}, two_ranks()),
            "==========================================\n"
            "Num process (COMM_WORLD): 2\n"
            "Using CPU\n"
            "Using arena communicator\n"
            "Num unit: 1000\n"
            "Num Minibatch-size: 100\n"
            "Num epoch: 20\n"
            "==========================================\n");
}

TEST(PrintReport, SaysHowLongTheRunIsByTheSettingThatGoverns) {
  Settings settings;
  settings.train.steps = 12000;
  const std::string header = job_header(settings, two_ranks());
  EXPECT_NE(header.find("\nNum iteration: 12,000 (train.steps)\n"), std::string::npos) << header;
  EXPECT_EQ(header.find("Num epoch"), std::string::npos) << header;
}

TEST(PrintReport, ShowsAPartOfAnEpochAsAPart) {
  EpochReport report = first_epoch();
  report.epoch = 3;
  report.part = 0.25;
  EXPECT_TRUE(table_row(report).starts_with("2.25 ")) << table_row(report);
  report.part = 0.999999;
  EXPECT_TRUE(table_row(report).starts_with("2.9999 ")) << table_row(report);
  const auto line = nlohmann::json::parse(epoch_json(report));
  EXPECT_EQ(line["epoch"], 3);
  EXPECT_DOUBLE_EQ(line["epoch_detail"], 2.999999);
  EXPECT_FALSE(nlohmann::json::parse(epoch_json(first_epoch())).contains("epoch_detail"));
}

TEST(PrintReport, ListsUnequalLayers) {
  Settings settings;
  settings.model.units = {300, 100};
  EXPECT_NE(job_header(settings, two_ranks()).find("Num unit: 300, 100\n"), std::string::npos);
  settings.model.name = "resnet";
  settings.model.depth = 20;
  EXPECT_NE(job_header(settings, two_ranks()).find("\nModel: resnet of depth 20\n"), std::string::npos);
  settings.model.layers = {{"a", Dense{10}}, {"loss", SoftmaxCrossEntropy{}}};
  EXPECT_NE(job_header(settings, two_ranks()).find("\nModel: 2 layers\n"), std::string::npos);
}

TEST_F(ConsoleTest, SaysWhichDataItUses) {
  Console console{settings_, out_, {}};
  console.started(two_ranks(), "cpu", {.folder = "/data", .description = "IDX data from /data (TROUPE_DATA)"});
  EXPECT_TRUE(out_.str().starts_with("Data: IDX data from /data (TROUPE_DATA)\n")) << out_.str();
}

TEST_F(ConsoleTest, GivesAValueThatTheAppReportsAColumnAndSaysItsNameWhenItComes) {
  Console console{settings_, out_, {}};
  EpochReport report = first_epoch();
  console.epoch(report);
  report.values = {{"grad_norm", 2.5}};
  console.epoch(report);
  report.values = {};
  console.epoch(report);
  EXPECT_EQ(out_.str(), table_row(first_epoch()) + table_header({"grad_norm"}) +
                            table_row(first_epoch()).substr(0, table_row(first_epoch()).size() - 1) + "2.5         \n" +
                            table_row(first_epoch()).substr(0, table_row(first_epoch()).size() - 1) + "            \n");
  EXPECT_TRUE(table_header({"grad_norm"}).ends_with("  elapsed_time  grad_norm \n")) << table_header({"grad_norm"});
}

TEST_F(ConsoleTest, EndsWithSpeedBestAccuracyAndPlace) {
  Console console{settings_, out_, {}};
  console.epoch(first_epoch());
  EpochReport worse = first_epoch();
  worse.epoch = 2;
  worse.test_accuracy = 0.9600;
  console.epoch(worse);
  out_.str("");
  RunResult result;
  result.total = {.steps = 600, .samples = 120000, .train_s = 4.0, .elapsed_s = 5.0};
  console.finish(result);
  EXPECT_EQ(out_.str(),
            "Trained 600 steps in 5.0 s: 30,000 samples/s, best test accuracy 0.9695 (epoch 1), results in " +
                settings_.report.dir + "\n");
}

TEST_F(ConsoleTest, SaysThatThereWasNothingToTrain) {
  Console console{settings_, out_, {}};
  RunResult result;
  result.total.steps = 6000;
  console.finish(result);
  EXPECT_EQ(out_.str(), "Nothing to train: all 6,000 steps were done before, results in " + folder_ + "\n");
}

TEST_F(ConsoleTest, PrintsOnlyTheLastLineWhenQuiet) {
  Console console{settings_, out_, {.quiet = true, .bar = true}};
  console.started(two_ranks(), "cpu", {});
  console.progress({.step = 1, .steps = 10});
  console.epoch(first_epoch());
  EXPECT_EQ(out_.str(), "");
  console.finish({});
  EXPECT_NE(out_.str(), "");
}

EpochReport counted_epoch(std::uint32_t epoch) {
  EpochReport report = first_epoch();
  report.epoch = epoch;
  report.samples = 60000 * std::uint64_t{epoch};
  report.train_s = 12.5 * epoch;
  return report;
}

constexpr StepsReport kSomeSteps{.epoch = 2,
                                 .first = 101,
                                 .last = 200,
                                 .samples = 20000,
                                 .loss = 0.25,
                                 .accuracy = 0.9552,
                                 .samples_per_s = 19718.256};

TEST_F(ConsoleTest, PrintsTheLinesOfMxnet) {
  settings_.report.format = "mxnet";
  Console console{settings_, out_, {}};
  console.started(two_ranks(), "cpu", {});
  EXPECT_EQ(out_.str().find("main/loss"), std::string::npos) << "a table's header without a table";
  console.epoch(counted_epoch(1));
  out_.str("");
  console.steps(kSomeSteps);
  console.epoch(counted_epoch(2));
  EpochReport without_test = counted_epoch(3);
  without_test.test_accuracy.reset();
  console.epoch(without_test);
  EXPECT_EQ(out_.str(),
            "Epoch[1] Batch [200]\tSpeed: 19718.26 samples/sec\taccuracy=0.955200\n"
            "Epoch[1] Train-accuracy=0.933500\n"
            "Epoch[1] Time cost=12.500\n"
            "Epoch[1] Validation-accuracy=0.969500\n"
            "Epoch[2] Train-accuracy=0.933500\n"
            "Epoch[2] Time cost=12.500\n");
}

TEST_F(ConsoleTest, PrintsTheLinesOfCntk) {
  settings_.report.format = "cntk";
  Plan plan = two_ranks();
  plan.test_samples = 10000;
  Console console{settings_, out_, {}};
  console.started(plan, "cpu", {});
  console.epoch(counted_epoch(1));
  out_.str("");
  console.steps(kSomeSteps);
  console.steps({.epoch = 2, .first = 1, .last = 7, .samples = 448, .loss = 2.302585093, .accuracy = 0.1});
  console.epoch(counted_epoch(2));
  EXPECT_EQ(out_.str(),
            " Minibatch[ 101- 200]: loss = 0.250000 * 20000, metric = 4.48% * 20000;\n"
            " Minibatch[   1-   7]: loss = 2.302585 * 448, metric = 90.00% * 448;\n"
            "Finished Epoch[2 of 20]: [Training] loss = 0.224002 * 60000, metric = 6.65% * 60000 12.500s (4800.0 "
            "samples/s);\n"
            "Finished Evaluation [2]: Minibatch[1-50]: metric = 3.05% * 10000;\n");
}

TEST_F(ConsoleTest, HasLinesInsideAnEpochInThoseFormatsAlone) {
  for (const char* format : {"chainermn", "json"}) {
    settings_.report.format = format;
    Console{settings_, out_, {}}.steps(kSomeSteps);
  }
  settings_.report.format = "mxnet";
  Console{settings_, out_, {.quiet = true}}.steps(kSomeSteps);
  Console{settings_, out_, {.json = true}}.steps(kSomeSteps);
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ConsoleTest, PrintsEveryLineAsJsonWhenAskedTo) {
  settings_.report.format = "json";
  Console console{settings_, out_, {}};
  console.started(two_ranks(), "cpu", {});
  console.epoch(first_epoch());
  console.finish({});
  std::istringstream lines{out_.str()};
  std::string line;
  std::size_t count = 0;
  for (; std::getline(lines, line); ++count) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  EXPECT_EQ(count, 3u);
}

TEST_F(ConsoleTest, PrintsEventsWithProgressWhenAskedForJson) {
  Console console{settings_, out_, {.json = true, .bar = true}};
  console.starting(2);
  console.started(two_ranks(), "cpu", {.folder = {}, .description = "a path that is no UTF-8: \xff"});
  console.progress({.step = 1, .steps = 10, .samples_per_s = 100, .loss = NAN});
  console.epoch(first_epoch());
  console.finish({});
  std::istringstream lines{out_.str() + failed_json("rank 1 was lost", 4)};
  std::vector<std::string> events;
  for (std::string line; std::getline(lines, line);) events.push_back(nlohmann::json::parse(line).at("event"));
  EXPECT_EQ(events, (std::vector<std::string>{"started", "progress", "epoch", "finished", "finished"}));
}

TEST_F(ConsoleTest, SaysOnATerminalThatItStarts) {
  Console console{settings_, out_, {.bar = true}};
  console.starting(2);
  EXPECT_EQ(out_.str(), "\rstarting 2 ranks (faults.start_s = 60)\033[K");
}

TEST_F(ConsoleTest, DrawsNoBarWithoutATerminal) {
  Console console{settings_, out_, {.bar = false}};
  console.progress({.step = 1, .steps = 10, .samples_per_s = 100});
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ConsoleTest, TakesTheBarAwayBeforeARow) {
  Console console{settings_, out_, {.bar = true}};
  console.progress({.step = 1, .steps = 10, .samples_per_s = 100});
  EXPECT_TRUE(out_.str().starts_with("\r")) << out_.str();
  out_.str("");
  console.epoch(first_epoch());
  EXPECT_TRUE(out_.str().starts_with("\r\033[K1  ")) << out_.str();
}

TEST(ProgressBarTest, KeepsToOneLineOfTheTerminal) {
  for (const std::size_t columns : {10u, 60u, 80u, 200u}) {
    std::ostringstream out;
    terminal::ProgressBar bar{out, true, columns};
    bar.draw("epoch 3/20 step 900/6000", 0.15, "45,123 samples/s, 0:27 left");
    const std::string text = out.str();
    ASSERT_TRUE(text.starts_with("\r") && text.ends_with("\033[K"));
    EXPECT_LT(text.size() - 4, columns);
  }
}

TEST(ProgressBarTest, SaysSpeedAndTheTimeThatIsLeft) {
  const RunProgress progress{.step = 900, .steps = 6000, .samples_per_s = 45123};
  EXPECT_EQ(progress_label(progress, 300, 20), "epoch 4/20 step 900/6000");
  EXPECT_EQ(progress_tail(progress, 200), "45,123 samples/s, 0:23 left");
}

}  // namespace
}  // namespace troupe::rtrun
