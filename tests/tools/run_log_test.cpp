// The files that a run keeps in its report folder line by line.

#include "apps/session/run_log.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "apps/session/log_writer.hpp"
#include "runtime/base/error.hpp"

namespace troupe {
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

EpochReport epoch_of(std::uint32_t epoch, std::vector<ReportedValue> values = {}) {
  EpochReport report = first_epoch();
  report.epoch = epoch;
  report.steps = 300 * epoch;
  report.values = std::move(values);
  return report;
}

/// Leaves no more than `room` bytes to a file.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::size_t room) : ignored_(::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &former_), 0);
    const struct rlimit tight { room, former_.rlim_max };
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  }
  ~FileSizeLimit() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &former_), 0);
    ::signal(SIGXFSZ, ignored_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  struct rlimit former_ {};
  void (*ignored_)(int);
};

/// A log in a folder of its own.
class LogReport : public ::testing::Test {
 protected:
  LogReport() {
    std::string pattern = ::testing::TempDir() + "/log-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/log";
  }
  ~LogReport() override { std::filesystem::remove_all(folder_); }
  std::string bytes() const { return bytes_of(path_); }
  nlohmann::json log() const { return nlohmann::json::parse(bytes()); }
  std::vector<std::uint64_t> iterations() const {
    std::vector<std::uint64_t> all;
    for (const auto& line : log()) all.push_back(line.at("iteration"));
    return all;
  }

  std::string folder_;
  std::string path_;
};

TEST_F(LogReport, IsAnArrayWithTheKeysOfChainer) {
  LogFile file{path_};
  file.add(first_epoch());
  const nlohmann::json log = this->log();
  ASSERT_EQ(log.size(), 1u);
  EXPECT_EQ(log[0]["epoch"], 1);
  EXPECT_EQ(log[0]["iteration"], 300);
  EXPECT_DOUBLE_EQ(log[0]["main/loss"], 0.2240019);
  EXPECT_DOUBLE_EQ(log[0]["validation/main/accuracy"], 0.9695);
  EXPECT_DOUBLE_EQ(log[0]["elapsed_time"], 17.134112);
}

TEST_F(LogReport, HasTheBytesOfAnArrayIndentedByFour) {
  LogFile file{path_};
  EpochReport report = first_epoch();
  report.switches.push_back({.step = 250, .samples = 50000, .policy = "two\nlines", .reason = "update.switch"});
  for (report.epoch = 1; report.epoch <= 3; ++report.epoch) {
    file.add(report);
    EXPECT_EQ(bytes(), nlohmann::ordered_json::parse(bytes()).dump(4) + "\n");
    EXPECT_EQ(log().size(), report.epoch);
  }
}

TEST_F(LogReport, OfALongRunIsWrittenALineAtATime) {
  LogFile file{path_};
  file.add(first_epoch());
  struct stat before {};
  ASSERT_EQ(::stat(path_.c_str(), &before), 0);
  for (int i = 0; i < 1000; ++i) file.add(first_epoch());
  struct stat after {};
  ASSERT_EQ(::stat(path_.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino) << "the whole file was written anew";
  EXPECT_EQ(log().size(), 1001u);
}

TEST_F(LogReport, BeginsAnewWithANewRunAndWhenSomebodyRemovedIt) {
  LogFile first{path_};
  first.add(first_epoch());
  first.add(first_epoch());
  LogFile second{path_};
  second.add(first_epoch());
  EXPECT_EQ(log().size(), 1u);
  std::filesystem::remove(path_);
  second.add(first_epoch());
  EXPECT_EQ(log().size(), 1u);
}

TEST_F(LogReport, StaysWholeWhenThereIsNoRoomAndHasEveryLineWhenThereIsAgain) {
  LogFile file{path_};
  file.add(first_epoch());
  const std::string before = bytes();
  for (const std::size_t room : {0u, 1u, 3u, 10u, 100u}) {
    const FileSizeLimit limit{before.size() + room};
    EXPECT_THROW(file.add(first_epoch()), Error);
    EXPECT_EQ(bytes(), before);
  }
  file.add(first_epoch());
  EXPECT_EQ(log().size(), 7u);
}

TEST_F(LogReport, IsMendedWhereverItsWriterWasKilled) {
  LogFile file{path_};
  EpochReport report = first_epoch();
  report.ranks.resize(2);
  file.add(report);
  const std::string before = bytes();
  file.add(report);
  const std::string after = bytes();
  for (std::size_t cut = before.size() - 3; cut < after.size(); ++cut) {
    std::string torn = after.substr(0, cut);
    if (cut < before.size()) torn += before.substr(cut);
    std::ofstream{path_, std::ios::binary} << torn;
    mend_log(path_);
    ASSERT_TRUE(bytes() == before || bytes() == after) << torn;
  }
  mend_log(path_ + "-that-is-not-there");
  EXPECT_FALSE(std::filesystem::exists(path_ + "-that-is-not-there"));
}

TEST(EpochJson, TellsWhichPoliciesBeganInAnEpochAndWhy) {
  EpochReport report = first_epoch();
  EXPECT_FALSE(nlohmann::json::parse(epoch_json(report)).contains("switches"));
  report.switches.push_back({.step = 250, .samples = 50000, .policy = "local_sgd: deltas", .reason = "update.switch"});
  const auto line = nlohmann::json::parse(epoch_json(report));
  ASSERT_EQ(line["switches"].size(), 1u);
  EXPECT_EQ(line["switches"][0]["iteration"], 250);
  EXPECT_EQ(line["switches"][0]["samples"], 50000);
  EXPECT_EQ(line["switches"][0]["policy"], "local_sgd: deltas");
  EXPECT_EQ(line["switches"][0]["reason"], "update.switch");
}

TEST_F(LogReport, OfARunThatGoesOnKeepsTheLinesUpToItsFirstStep) {
  {
    LogFile before{path_};
    for (std::uint32_t epoch = 1; epoch <= 4; ++epoch) before.add(epoch_of(epoch));
  }
  LogFile after{path_};
  after.go_on_after(700);
  EXPECT_EQ(iterations(), (std::vector<std::uint64_t>{300, 600, 900, 1200})) << "changed before there was a line";
  after.add(epoch_of(3));
  EXPECT_EQ(iterations(), (std::vector<std::uint64_t>{300, 600, 900}));
  after.add(epoch_of(4));
  EXPECT_EQ(iterations(), (std::vector<std::uint64_t>{300, 600, 900, 1200}));
  EXPECT_EQ(bytes(), nlohmann::ordered_json::parse(bytes()).dump(4) + "\n");
}

TEST_F(LogReport, GoesOnFromWhatAKilledWriterLeftAndFromWhatIsNoLog) {
  {
    LogFile before{path_};
    before.add(epoch_of(1));
    before.add(epoch_of(2));
  }
  const std::string whole = bytes();
  std::ofstream{path_, std::ios::binary} << whole.substr(0, whole.size() - 10);
  {
    LogFile after{path_};
    after.go_on_after(600);
    after.add(epoch_of(3));
    EXPECT_EQ(iterations(), (std::vector<std::uint64_t>{300, 900}));
  }
  for (const char* other : {"", "no log", "{}", "[1, {}, {\"iteration\": \"x\"}]"}) {
    std::ofstream{path_, std::ios::binary} << other;
    LogFile after{path_};
    after.go_on_after(600);
    after.add(epoch_of(3));
    EXPECT_EQ(iterations(), (std::vector<std::uint64_t>{900})) << other;
  }
}

TEST_F(LogReport, HasTheAppsValuesByTheirNamesAndNullForOneThatIsNotFinite) {
  LogFile file{path_};
  file.add(epoch_of(1, {{"grad_norm", 1.5}, {"reward", NAN}, {"x/y", INFINITY}}));
  EXPECT_EQ(log()[0].at("grad_norm"), 1.5);
  EXPECT_TRUE(log()[0].at("reward").is_null());
  EXPECT_TRUE(log()[0].at("x/y").is_null());
}

TEST_F(LogReport, TellsTheEvaluationsOfItsFirstSteps) {
  LogFile file{path_};
  EpochReport without = epoch_of(2);
  without.test_loss.reset();
  EpochReport lost = epoch_of(3);
  lost.test_loss = NAN;
  for (const EpochReport& line : {epoch_of(1), without, lost, epoch_of(4), lost, epoch_of(4), epoch_of(5)})
    file.add(line);
  const auto found = evaluations_in(path_, 1200);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].epoch, 1u);
  EXPECT_EQ(found[0].loss, 0.1023219);
  EXPECT_TRUE(std::isnan(found[1].loss));
  EXPECT_EQ(found[2].steps, 1200u);
  EXPECT_TRUE(evaluations_in(path_ + "-that-is-not-there", 1200).empty());
}

/// The table beside a log.
class LogTable : public LogReport {
 protected:
  std::vector<std::string> rows() const {
    std::vector<std::string> all;
    std::istringstream lines{bytes()};
    for (std::string line; std::getline(lines, line);) all.push_back(line);
    return all;
  }
  static std::vector<std::string> cells(const std::string& row) {
    std::vector<std::string> all;
    std::istringstream in{row + ","};
    for (std::string cell; std::getline(in, cell, ',');) all.push_back(cell);
    return all;
  }
  std::string cell(std::size_t row, const std::string& column) const {
    const auto names = cells(rows().at(0));
    const auto at = static_cast<std::size_t>(std::find(names.begin(), names.end(), column) - names.begin());
    return cells(rows().at(row)).at(at);
  }
};

TEST_F(LogTable, HasALineOfNamesAndTheNumbersOfTheLog) {
  CsvLog table{path_};
  table.add(first_epoch());
  EXPECT_EQ(bytes(),
            "epoch,epoch_detail,iteration,elapsed_time,steps_per_s,main/loss,main/accuracy,validation/main/loss,"
            "validation/main/accuracy,lr,skipped\n"
            "1,1,300,17.134112,,0.2240019,0.9335,0.1023219,0.9695,,0\n");
  EpochReport report = epoch_of(2);
  report.test_loss.reset();
  report.test_accuracy.reset();
  report.loss = NAN;
  report.rate = 0.1;
  table.add(report);
  EXPECT_EQ(cell(2, "iteration"), "600");
  EXPECT_EQ(cell(2, "main/loss"), "nan");
  EXPECT_EQ(cell(2, "validation/main/loss"), "");
  EXPECT_EQ(cell(2, "lr"), "0.1");
  report.rate = 0;  // as at the end of a schedule
  table.add(report);
  EXPECT_EQ(cell(3, "lr"), "0");
}

TEST_F(LogTable, GetsAColumnForAValueThatComesLater) {
  CsvLog table{path_};
  table.add(epoch_of(1));
  table.add(epoch_of(2, {{"b", 2.5}}));
  table.add(epoch_of(3, {{"a", 1}, {"b", INFINITY}}));
  table.add(epoch_of(4));
  ASSERT_EQ(rows().size(), 5u);
  for (const std::string& row : rows()) EXPECT_EQ(cells(row).size(), 13u) << row;
  EXPECT_TRUE(rows()[0].ends_with(",skipped,b,a")) << rows()[0];
  EXPECT_EQ(cell(1, "b"), "");
  EXPECT_EQ(cell(2, "b"), "2.5");
  EXPECT_EQ(cell(2, "a"), "");
  EXPECT_EQ(cell(3, "a"), "1");
  EXPECT_EQ(cell(3, "b"), "inf");
  EXPECT_EQ(cell(4, "b"), "");
}

TEST_F(LogTable, HasTheLossScaleOfJobsThatHaveOne) {
  EpochReport scaled = epoch_of(1, {{"a", 1}});
  scaled.loss_scale = 32768;
  CsvLog table{path_};
  table.add(scaled);
  scaled = epoch_of(2);
  scaled.loss_scale = 0.5;
  table.add(scaled);
  EXPECT_TRUE(rows()[0].ends_with(",skipped,loss_scale,a")) << rows()[0];
  EXPECT_EQ(cell(1, "loss_scale"), "32768");
  EXPECT_EQ(cell(2, "loss_scale"), "0.5");
  EXPECT_TRUE(is_log_key("loss_scale")) << "a program's value would be in the same column";
}

TEST_F(LogTable, IsReplacedAsAWholeForANewColumnAndOtherwiseWrittenALineAtATime) {
  const auto file_id = [&] {
    struct stat now {};
    EXPECT_EQ(::stat(path_.c_str(), &now), 0);
    return now.st_ino;
  };
  CsvLog table{path_};
  table.add(epoch_of(1));
  const auto first = file_id();
  for (int i = 0; i < 1000; ++i) table.add(epoch_of(2));
  EXPECT_EQ(file_id(), first) << "the whole file was written anew";
  table.add(epoch_of(3, {{"a", 1}}));
  EXPECT_NE(file_id(), first) << "a reader may have seen a part";
  EXPECT_EQ(rows().size(), 1003u);
}

TEST_F(LogTable, OfARunThatGoesOnKeepsTheRowsUpToItsFirstStep) {
  {
    CsvLog before{path_};
    for (std::uint32_t epoch = 1; epoch <= 4; ++epoch) before.add(epoch_of(epoch, {{"a", 1.0 * epoch}}));
  }
  CsvLog after{path_};
  after.go_on_after(700);
  after.add(epoch_of(3, {{"b", 7}}));
  ASSERT_EQ(rows().size(), 4u);
  EXPECT_EQ(cell(2, "a"), "2");
  EXPECT_EQ(cell(3, "a"), "");
  EXPECT_EQ(cell(3, "b"), "7");
}

TEST_F(LogTable, GoesOnFromWhatAKilledWriterLeftAndFromWhatIsNoTable) {
  {
    CsvLog before{path_};
    before.add(epoch_of(1));
    before.add(epoch_of(2));
  }
  const std::string whole = bytes();
  std::ofstream{path_, std::ios::binary} << whole.substr(0, whole.size() - 10);
  {
    CsvLog after{path_};
    after.go_on_after(600);
    after.add(epoch_of(3));
    ASSERT_EQ(rows().size(), 3u);
    EXPECT_EQ(cell(2, "iteration"), "900");
  }
  for (const char* other : {"", "a,b\n1,2\n", "\n\n"}) {
    std::ofstream{path_, std::ios::binary} << other;
    CsvLog after{path_};
    after.go_on_after(600);
    after.add(epoch_of(3));
    ASSERT_EQ(rows().size(), 2u) << other;
    EXPECT_EQ(cell(1, "iteration"), "900");
  }
}

TEST_F(LogTable, StaysWholeWhenThereIsNoRoomAndHasEveryRowWhenThereIsAgain) {
  CsvLog table{path_};
  table.add(epoch_of(1));
  const std::string before = bytes();
  for (const std::size_t room : {0u, 1u, 3u, 10u}) {
    const FileSizeLimit limit{before.size() + room};
    EXPECT_THROW(table.add(epoch_of(2)), Error);
    EXPECT_EQ(bytes(), before);
  }
  table.add(epoch_of(3, {{"a", 1}}));
  EXPECT_EQ(rows().size(), 7u);
  EXPECT_EQ(cell(6, "a"), "1");
}

TEST_F(LogTable, IsMendedBesideItsLog) {
  CsvLog table{path_ + ".csv"};
  table.add(epoch_of(1));
  const std::string before = bytes_of(path_ + ".csv");
  table.add(epoch_of(2));
  const std::string after = bytes_of(path_ + ".csv");
  for (std::size_t cut = before.size(); cut <= after.size(); ++cut) {
    std::ofstream{path_ + ".csv", std::ios::binary} << after.substr(0, cut);
    mend_log(path_);
    ASSERT_EQ(bytes_of(path_ + ".csv"), cut == after.size() ? after : before);
  }
}

/// Records what it is given.
class Told final : public SessionListener {
 public:
  void note(const std::string& text) override { all_ += "note " + text + "; "; }
  void lost(std::uint32_t rank, const std::string& why) override {
    all_ += "lost " + std::to_string(rank) + " " + why + "; ";
  }
  void preparing(std::uint64_t done, std::uint64_t total, const std::string& what) override {
    all_ += what + " " + std::to_string(done) + "/" + std::to_string(total) + "; ";
  }
  void resumed(const std::string& folder, std::uint64_t) override { all_ += "resumed " + folder + "; "; }
  void epoch(const EpochReport& line) override { all_ += "epoch " + std::to_string(line.epoch) + "; "; }
  const std::string& all() const { return all_; }

 private:
  std::string all_;
};

TEST_F(LogReport, HandsOnWhatItsWriterIsTold) {
  Told told;
  Settings settings;
  settings.report.dir = std::filesystem::path(path_).parent_path();
  LogWriter writer{settings, &told};
  writer.note("a note");
  writer.preparing(1, 2, "copying");
  writer.lost(3, "its process ended");
  writer.resumed("elsewhere", 7);
  writer.epoch(epoch_of(1));
  EXPECT_EQ(told.all(), "note a note; copying 1/2; lost 3 its process ended; resumed elsewhere; epoch 1; ");
}

}  // namespace
}  // namespace troupe
