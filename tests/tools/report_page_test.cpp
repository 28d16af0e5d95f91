#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "apps/report/chart.hpp"
#include "apps/report/page.hpp"
#include "apps/report/report_writer.hpp"
#include "apps/report/run_summary.hpp"
#include "apps/report/words.hpp"
#include "tests/tools/report_records.hpp"

namespace troupe::report {
namespace {

using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::Not;
using testing::run_of;
using ::testing::SizeIs;

// ---- the page ----

TEST(ReportPage, AsksNothingOfANetworkAndRunsNoScript) {
  const std::string page = page_of(run_of(3));
  for (const char* what : {"<script", "http://", "https://", " src=", " href=", "url(", "@import"})
    EXPECT_THAT(page, Not(HasSubstr(what)));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

TEST(ReportPage, TellsModelDataRanksSettingsWithOriginsAndPlan) {
  const std::string page = page_of(run_of(3));
  for (const char* what :
       {"apps/mnist/app.toml", "IDX data from data/mnist", "mlp; 1,796,010 parameters", "2 on 1 node",
        "<td>--set train.epochs</td>", "apps/mnist/app.toml:16:9", "<td>default</td>", "route    arena"})
    EXPECT_THAT(page, HasSubstr(what));
}

TEST(ReportPage, ShowsLossAccuracySpeedAndWhereTheTimeWent) {
  const std::string page = page_of(run_of(3));
  for (const char* what : {">Loss<", ">Accuracy<", ">Samples per second<", ">Where rank 0's time went<"})
    EXPECT_THAT(page, HasSubstr(what));
  for (const char* what : {"compute", "update", "exchange", "load", "idle"})
    EXPECT_THAT(page, HasSubstr(std::string{"class=\"area "} + what));
}

TEST(ReportPage, GivesTheTimeOfAStepOfEachKind) {
  // 3 epochs of 300 steps in 6 s, of which 60 % were arithmetic.
  EXPECT_THAT(page_of(run_of(3)), HasSubstr("<td>3.6 s</td><td>60.0 %</td><td>4.000 ms</td>"));
}

TEST(ReportPage, SaysThatNoTimeWentToLoading) {
  RunRecord record = run_of(1);
  record.trace = {};
  record.trace.add({1, 1, 60000, {.compute = std::chrono::seconds{1}}});
  const std::string page = page_of(record);
  EXPECT_THAT(page, HasSubstr("waiting for a training batch</td><td>0 ms</td><td>0 %</td><td>0.000 ms</td>"));
  EXPECT_THAT(page, Not(HasSubstr("copies of weights")));
}

TEST(ReportPage, LeavesOutWhatTheDeviceDoesNotMeasure) {
  RunRecord record = run_of(2);
  record.trace = {};
  record.trace.add({4, 4, 120000, {}});
  const std::string page = page_of(record);
  EXPECT_THAT(page, Not(HasSubstr("time went")));
  EXPECT_THAT(page, HasSubstr("Samples per second"));
}

TEST(ReportPage, EscapesWhatComesFromOutside) {
  RunRecord record = run_of(1);
  record.configuration = "<script>alert(\"1\")</script>&'\x01.toml";
  record.reason = "<b>";
  record.state = RunState::failed;
  record.notes = {"</li><img src=x>"};
  record.settings.push_back({"data.path", "\"<i>\"", "--set <u>"});
  const std::string page = page_of(record);
  for (const char* what : {"<script", "<img", "<i>", "<u>", "\x01"}) EXPECT_THAT(page, Not(HasSubstr(what)));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;"));
}

TEST(ReportPage, SaysWhichEpochsHaveALossThatIsNoNumberAndWhatToDo) {
  const std::string page = page_of(testing::run_with_nan_from(3, 5));
  EXPECT_THAT(page, HasSubstr("The training loss of 3 epochs is not a finite number (crosses), first in epoch 3."));
  EXPECT_THAT(page, HasSubstr("Lower optimizer.rate"));
  EXPECT_THAT(page, HasSubstr("class=\"cross train\""));
}

TEST(ReportPage, TakesAnEpochInWhichNoRoundHasEndedForNoTrouble) {
  RunRecord record = testing::run_with_nan_from(3, 5);
  for (EpochReport& line : record.epochs) line.counted = line.epoch < 3;
  EXPECT_THAT(page_of(record), Not(HasSubstr("is not a finite number")));
  EXPECT_THAT(page_of(record), Not(HasSubstr("class=\"cross train\"")));
}

TEST(ReportPage, HasSomethingToSayBeforeTheFirstEpoch) {
  RunRecord record = run_of(1);
  record.state = RunState::running;
  record.epochs.clear();
  record.trace = {};
  record.last = {.steps = 300};
  const std::string page = page_of(record);
  EXPECT_THAT(page, HasSubstr("Running</b>: no step is done yet"));
  EXPECT_THAT(page, Not(HasSubstr("<figure>")));
}

TEST(ReportPage, IsReloadedOnlyWhileTheRunIsInProgress) {
  RunRecord record = run_of(1);
  EXPECT_THAT(page_of(record), Not(HasSubstr("http-equiv=\"refresh\"")));
  record.state = RunState::running;
  EXPECT_THAT(page_of(record), HasSubstr("http-equiv=\"refresh\""));
}

TEST(ReportPage, OfARunThatCannotTellAnyMoreIsToldByOthers) {
  RunRecord record = run_of(2);
  record.state = RunState::running;
  const auto told = failed_page(page_of(record), "rank 0 was killed by SIGKILL <9>");
  ASSERT_TRUE(told);
  EXPECT_THAT(*told, HasSubstr("Failed</b>: rank 0 was killed by SIGKILL &lt;9&gt;"));
  EXPECT_THAT(*told, Not(HasSubstr("http-equiv=\"refresh\"")));
  EXPECT_THAT(*told, HasSubstr(">Loss<"));
  EXPECT_TRUE(failed_page(*told, "a better reason"));
  EXPECT_FALSE(failed_page(page_of(run_of(2)), "the run had ended well"));
  EXPECT_FALSE(failed_page("<html>", "not a page of ours"));
}

// ---- charts ----

TEST(ChartAxis, HasRoundEndsAndTicksThatTellThemApart) {
  const Axis axis = rounded_axis("loss", 0, 0.231);
  EXPECT_DOUBLE_EQ(axis.low, 0);
  EXPECT_DOUBLE_EQ(axis.high, 0.25);
  EXPECT_THAT(tick_texts(ticks_of(axis)), ElementsAre("0", "0.05", "0.10", "0.15", "0.20", "0.25"));
}

TEST(ChartAxis, CountsLargeNumbersInThousands) {
  EXPECT_THAT(tick_texts(ticks_of(rounded_axis("samples/s", 0, 45000))),
              ElementsAre("0", "10k", "20k", "30k", "40k", "50k"));
}

TEST(ChartAxis, MakesRoomAroundASingleValue) {
  const Axis axis = rounded_axis("accuracy", 0.5, 0.5);
  EXPECT_LT(axis.low, 0.5);
  EXPECT_GT(axis.high, 0.5);
  EXPECT_LT(rounded_axis("loss", 0, 0).low, rounded_axis("loss", 0, 0).high);
}

TEST(ChartAxis, OfPowersTakesNoNumberBetweenWhenTheyAreMany) {
  EXPECT_THAT(tick_texts(ticks_of(rounded_axis("loss", 0.004, 0.3, Scale::logarithmic))),
              ElementsAre("0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2", "0.5"));
  EXPECT_LE(ticks_of(rounded_axis("loss", 1e-9, 1e9, Scale::logarithmic)).size(), 8u);
}

TEST(ChartAxis, OfEpochsHasWholeNumbersOnly) {
  EXPECT_THAT(ticks_of({"epoch", 1, 3, Scale::whole}), ElementsAre(1, 2, 3));
  EXPECT_THAT(ticks_of({"epoch", 0.5, 1.5, Scale::whole}), ElementsAre(1));
}

TEST(Chart, LeavesAGapAndACrossWhereAValueIsNoNumber) {
  const Curve curve{.name = "c", .style = "train", .dots = {{1, 1, {}}, {2, NAN, {}}, {3, 1, {}}, {4, 0, {}}}};
  const std::string svg = line_chart("d", {"x", 1, 4}, {"y", 0, 1}, {curve});
  EXPECT_THAT(svg, HasSubstr("class=\"cross train\""));
  EXPECT_THAT(svg, ::testing::ContainsRegex("d=\"M[0-9. ]+M[0-9. ]+L[0-9. ]+\""));
}

TEST(Chart, KeepsTheLowestAndTheHighestOfManyDots) {
  std::vector<Dot> dots;
  for (int i = 0; i < 10000; ++i) dots.push_back({double(i), i == 1234 ? 9.0 : i == 7654 ? -9.0 : 0.0, {}});
  const std::vector<Dot> left = thinned(dots, 400);
  EXPECT_LE(left.size(), 410u);
  EXPECT_THAT(left, ::testing::Contains(::testing::Field(&Dot::y, 9.0)));
  EXPECT_THAT(left, ::testing::Contains(::testing::Field(&Dot::y, -9.0)));
  EXPECT_TRUE(std::is_sorted(left.begin(), left.end(), [](const Dot& a, const Dot& b) { return a.x < b.x; }));
}

TEST(RunTrace, KeepsBeginAndEndOfALongRunInBoundedMemory) {
  RunTrace trace;
  for (int i = 1; i <= 100000; ++i) trace.add({0.2 * i, 0.2 * i, std::uint64_t(i), {}});
  EXPECT_LE(trace.points().size(), RunTrace::kMostPoints);
  EXPECT_GE(trace.points().size(), RunTrace::kMostPoints / 2);
  EXPECT_EQ(trace.points().front().samples, 0u);
  EXPECT_EQ(trace.points().back().samples, 100000u);
}

TEST(Words, TellSpansInTheUnitThatFits) {
  EXPECT_EQ(span_text(0.0351), "35 ms");
  EXPECT_EQ(span_text(7.44), "7.4 s");
  EXPECT_EQ(span_text(123), "2 min 03 s");
  EXPECT_EQ(span_text(3723), "1 h 02 min");
  EXPECT_EQ(moment_text(std::chrono::system_clock::time_point{}), "1970-01-01 00:00:00 UTC");
}

// ---- the file ----

class ReportWriterTest : public ::testing::Test {
 protected:
  ReportWriterTest() {
    std::string pattern = ::testing::TempDir() + "/report-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    configuration_.file = "app.toml";
  }
  ~ReportWriterTest() override { std::filesystem::remove_all(folder_); }
  std::string page() const {
    std::ifstream file{folder_ / "report.html"};
    return {std::istreambuf_iterator<char>{file}, {}};
  }
  ReportWriter writer() {
    return {configuration_, folder_ / "report.html", [this](const std::string& text) { warnings_.push_back(text); }};
  }
  void start(ReportWriter& report) { report.started(*run_of(2).plan, "cpu", {.folder = {}, .description = "digits"}); }

  std::filesystem::path folder_;
  Configuration configuration_;
  std::vector<std::string> warnings_;
};

TEST(RunRecord, KeepsABoundedNumberOfEpochsAndTheBestAmongThem) {
  std::vector<EpochReport> epochs;
  constexpr std::uint32_t kBest = 4711;
  for (std::uint32_t epoch = 1; epoch <= 100'000; ++epoch) {
    EpochReport line{.epoch = epoch, .test_accuracy = epoch == kBest ? 0.9 : 0.5};
    line.ranks.resize(2);
    if (epoch % 50'000 == 1) line.switches.push_back({.step = epoch});
    add_epoch(epochs, line);
  }
  EXPECT_THAT(epochs, SizeIs(Le(kMostEpochs)));
  EXPECT_THAT(epochs, SizeIs(Ge(kMostEpochs / 2)));
  EXPECT_EQ(epochs.back().epoch, 100'000u);
  EXPECT_THAT(epochs.back().ranks, SizeIs(2));
  EXPECT_THAT(epochs.front().ranks, IsEmpty());
  EXPECT_TRUE(
      std::is_sorted(epochs.begin(), epochs.end(), [](const auto& a, const auto& b) { return a.epoch < b.epoch; }));
  EXPECT_EQ(std::count_if(epochs.begin(), epochs.end(), [](const auto& e) { return e.epoch == kBest; }), 1);
  std::size_t switches = 0;
  for (const EpochReport& epoch : epochs) switches += epoch.switches.size();
  EXPECT_EQ(switches, 2u);
}

TEST_F(ReportWriterTest, ShowsARunFromItsBeginning) {
  ReportWriter report = writer();
  start(report);
  EXPECT_THAT(page(), HasSubstr("Running</b>"));
  EXPECT_THAT(page(), HasSubstr("digits"));
}

TEST_F(ReportWriterTest, ShowsHowARunEnded) {
  ReportWriter report = writer();
  start(report);
  report.epoch(run_of(1).epochs[0]);
  RunResult result;
  result.total = {.steps = 600, .samples = 120000, .train_s = 4.0, .elapsed_s = 5.0};
  report.finish(result);
  EXPECT_THAT(page(), HasSubstr("Finished</b>: 600 of 600 steps"));
  result.stopped = true;
  report.finish(result);
  EXPECT_THAT(page(), HasSubstr("Stopped</b>: on request"));
  result.status = {Code::peer_lost, "rank 1 was lost"};
  report.finish(result);
  EXPECT_THAT(page(), HasSubstr("Failed</b>: rank 1 was lost"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator{folder_}, {}), 2) << "another file stayed";
}

TEST_F(ReportWriterTest, WritesASummaryForProgramsBesideThePage) {
  ReportWriter report = writer();
  start(report);
  report.note("rank 1: the thread compute may run on 0-1, and not on 1 alone");
  RunResult result;
  result.total = {.steps = 600, .samples = 120000, .train_s = 4.0, .elapsed_s = 5.0};
  result.total.times.compute = std::chrono::seconds{3};
  report.finish(result);
  const RunSummary summary = read_summary(folder_ / "report.json");
  EXPECT_EQ(summary.state, RunState::finished);
  EXPECT_EQ(summary.node_of_rank.size(), 2u);
  EXPECT_EQ(summary.samples, 120000u);
  EXPECT_THAT(summary.notes, ::testing::ElementsAre(HasSubstr("rank 1")));
  const MeasuredSteps measured = summary.measured();
  EXPECT_EQ(measured.steps, 120000 / summary.rows);
  EXPECT_DOUBLE_EQ(measured.step_s, 4.0 / static_cast<double>(measured.steps));
  EXPECT_DOUBLE_EQ(measured.seconds[static_cast<std::size_t>(StepPart::compute)],
                   3.0 / static_cast<double>(measured.steps));
  EXPECT_EQ(summary_from_json(to_json(summary), "x"), summary);
}

TEST(RunSummary, SaysWhatIsWrongWithAReport) {
  const auto refusal = [](const std::string& text) {
    try {
      (void)summary_from_json(text, "report.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid);
      return std::string{error.what()};
    }
    return std::string{"no error"};
  };
  const std::string head = R"({"schema": "troupe.report", "version": 1)";
  EXPECT_THAT(refusal("{"), HasSubstr("report.json: no JSON"));
  EXPECT_THAT(refusal("{}"), HasSubstr("this is not a run's report"));
  EXPECT_THAT(refusal(R"({"schema": "troupe.report", "version": 2})"), HasSubstr("version 2"));
  EXPECT_THAT(refusal(head + R"(, "train_s": -1})"), HasSubstr("train_s is not a number of seconds"));
  EXPECT_THAT(refusal(head + R"(, "samples": 1.5})"), HasSubstr("samples is not a whole number"));
  EXPECT_THAT(refusal(head + R"(, "node_of_rank": [0]})"), HasSubstr("node_of_rank is not a list of places"));
  EXPECT_THAT(refusal(head + R"(, "notes": [1]})"), HasSubstr("notes is not a list of texts"));
  EXPECT_THAT(refusal(head + R"(, "state": "asleep"})"), HasSubstr("state is not one of"));
  EXPECT_EQ(summary_from_json(head + "}", "x").measured().steps, 0u);
}

TEST_F(ReportWriterTest, ShowsWhyARunCouldNotBegin) {
  ReportWriter report = writer();
  report.failed("rank 1 did not come");
  EXPECT_THAT(page(), HasSubstr("Failed</b>: rank 1 did not come"));
}

TEST_F(ReportWriterTest, WarnsOnceAndSaysWhatToDoWhenItCannotWrite) {
  ReportWriter report{configuration_, folder_ / "gone" / "report.html",
                      [this](const std::string& text) { warnings_.push_back(text); }};
  start(report);
  report.finish({});
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("set report.dir to a folder that can be written"));
}

TEST_F(ReportWriterTest, LetsALauncherTellOfAFailure) {
  ReportWriter report = writer();
  start(report);
  tell_failure(folder_ / "report.html", "rank 0 was killed by SIGKILL");
  EXPECT_THAT(page(), HasSubstr("Failed</b>: rank 0 was killed by SIGKILL"));
  EXPECT_EQ(read_summary(folder_ / "report.json").state, RunState::failed);
  EXPECT_EQ(read_summary(folder_ / "report.json").reason, "rank 0 was killed by SIGKILL");
  tell_failure(folder_ / "none.html", "nobody hears");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none.html"));
}

}  // namespace
}  // namespace troupe::report
