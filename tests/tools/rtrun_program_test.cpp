// What users see of the real rtrun: its page, its JSON, its logs, its terminal output, its help.

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in{file};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// Every line of `text`, each of which must be an object with an event.
std::vector<json> events_in(const std::string& text) {
  std::vector<json> events;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) {
    const json event = json::parse(line, nullptr, false);
    if (!event.is_object() || !event.contains("event")) {
      ADD_FAILURE() << "no event: " << line;
      continue;
    }
    events.push_back(event);
  }
  return events;
}

std::string last_line(std::string text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

class RunSeen : public ClusterTest {
 protected:
  /// Runs it to its end.
  struct Ended {
    int exit_code = -1;
    std::string out;
    std::string err;
  };
  static Ended run(const ProgramStart& start) {
    Program program{start};
    const int code = program.wait(60s);
    return {code, program.out(), program.err()};
  }
  std::string page() const { return text_of(folder_.path() / "run/report.html"); }
  /// The program with a terminal for stdout and stderr.
  ProgramStart on_a_terminal(const std::vector<std::string>& more, const std::string& term) const {
    ProgramStart start = folder_.rtrun(more);
    std::string command;
    for (const std::string& argument : start.arguments) command += "'" + argument + "' ";
    start.arguments = {"script", "-qefc", command, "/dev/null"};
    start.environment.emplace_back("TERM", term);
    start.unset.emplace_back("NO_COLOR");
    return start;
  }
};

TEST_F(RunSeen, LeavesAPageThatTellsOfIt) {
  ASSERT_EQ(run(folder_.rtrun()).exit_code, 0);
  EXPECT_THAT(page(),
              AllOf(HasSubstr("Finished</b>: 100 of 100 steps"), HasSubstr(">Loss<"), HasSubstr(">Samples per second<"),
                    HasSubstr("Where rank 0's time went"), HasSubstr("app.toml:2:9")));
}

TEST_F(RunSeen, HasAPageWhileItIsInProgressWhichReportsItsEnd) {
  Program rtrun{folder_.rtrun(JobFolder::endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  ASSERT_TRUE(becomes_true([&] { return page().find("Running</b>") != std::string::npos; }, 10s));
  rtrun.signal(SIGINT);
  EXPECT_EQ(rtrun.wait(20s), 130) << rtrun.err();
  EXPECT_THAT(page(), HasSubstr("Stopped</b>: on request"));
}

TEST_F(RunSeen, HasItsFailureOnThePageAndLastOnStderrWhenRankZeroIsKilled) {
  Program rtrun{folder_.rtrun(JobFolder::endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  const auto ranks = children_of(rtrun.pid());
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[0], SIGKILL);
  EXPECT_EQ(rtrun.wait(10s), 4) << rtrun.err();
  EXPECT_TRUE(last_line(rtrun.err()).starts_with("rtrun: error: rank 0 (process ")) << rtrun.err();
  EXPECT_THAT(page(), AllOf(HasSubstr("Failed</b>: rank 0 (process "), Not(HasSubstr("http-equiv=\"refresh\""))));
}

TEST_F(RunSeen, NamesTheProgramOfRanksThatIsNotBesideIt) {
  const std::filesystem::path alone = folder_.path() / "rtrun";
  std::filesystem::copy_file(RTRUN_PROGRAM, alone);
  for (const char* nodes : {"cluster.nodes=local:1", "cluster.nodes=local:2"}) {
    ProgramStart start = folder_.rtrun({"--set", nodes});
    start.arguments.front() = alone;
    const Ended ended = run(start);
    EXPECT_EQ(ended.exit_code, 3) << ended.err;
    EXPECT_THAT(ended.err, AllOf(HasSubstr(std::filesystem::canonical(alone).string() + "-rank"),
                                 HasSubstr("install both again")));
  }
  std::filesystem::remove(alone);
}

TEST_F(RunSeen, PrintsEventsAndNothingElseAsJson) {
  auto arguments = JobFolder::short_run();
  arguments.emplace_back("--json");
  const Ended ended = run(folder_.rtrun(arguments));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const std::vector<json> events = events_in(ended.out);
  ASSERT_GE(events.size(), 3u) << ended.out;
  EXPECT_EQ(events.front()["event"], "started");
  EXPECT_EQ(events.front()["ranks"], 2);
  EXPECT_EQ(events.back()["event"], "finished");
  EXPECT_EQ(events.back()["status"], "finished");
  EXPECT_EQ(events.back()["iteration"], 1000);
  for (std::size_t i = 1; i + 1 < events.size(); ++i)
    EXPECT_THAT(events[i]["event"], ::testing::AnyOf("epoch", "progress"));
}

TEST_F(RunSeen, PrintsHowFarItIsAsJson) {
  auto arguments = JobFolder::endless();
  arguments.emplace_back("--json");
  Program rtrun{folder_.rtrun(arguments)};
  ASSERT_TRUE(rtrun.wait_until([](const Program& p) { return p.out().find("\"progress\"") != std::string::npos; }, 30s))
      << rtrun.err();
  rtrun.signal(SIGTERM);
  EXPECT_EQ(rtrun.wait(20s), 143) << rtrun.err();
  const std::vector<json> events = events_in(rtrun.out());
  const auto progress =
      std::find_if(events.begin(), events.end(), [](const json& e) { return e["event"] == "progress"; });
  ASSERT_NE(progress, events.end());
  for (const char* key : {"iteration", "iterations", "samples", "samples_per_s", "loss", "elapsed_time"})
    EXPECT_TRUE((*progress)[key].is_number()) << key;
  EXPECT_EQ(events.back()["status"], "stopped");
}

TEST_F(RunSeen, EndsItsJsonWithTheRankThatWasLost) {
  auto arguments = JobFolder::endless();
  arguments.emplace_back("--json");
  Program rtrun{folder_.rtrun(arguments)};
  ASSERT_TRUE(rtrun.wait_until([](const Program& p) { return p.out().find("\"epoch\"") != std::string::npos; }, 30s))
      << rtrun.err();
  const auto ranks = children_of(rtrun.pid());
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[1], SIGKILL);
  EXPECT_EQ(rtrun.wait(10s), 4) << rtrun.err();
  const std::vector<json> events = events_in(rtrun.out());
  EXPECT_EQ(events.back()["status"], "failed");
  EXPECT_EQ(events.back()["exit_code"], 4);
  EXPECT_THAT(events.back()["error"].get<std::string>(), HasSubstr("rank 1 (process "));
}

TEST_F(RunSeen, EndsItsJsonWithWhatIsWrongWithTheConfiguration) {
  const Ended ended = run(folder_.rtrun({"--json", "--set", "data.batch=0"}));
  EXPECT_EQ(ended.exit_code, 2);
  const std::vector<json> events = events_in(ended.out);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["status"], "failed");
  EXPECT_EQ(events[0]["exit_code"], 2);
  EXPECT_THAT(ended.err, HasSubstr("data.batch"));
}

TEST_F(RunSeen, PrintsOnlyTheLastLineWhenQuiet) {
  auto arguments = JobFolder::short_run();
  arguments.emplace_back("--quiet");
  const Ended ended = run(folder_.rtrun(arguments));
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(std::count(ended.out.begin(), ended.out.end(), '\n'), 1) << ended.out;
  EXPECT_EQ(ended.err, "");
}

TEST_F(RunSeen, KeepsWhatOtherRanksWriteInTheirFiles) {
  ProgramStart start = folder_.rtrun(JobFolder::short_run());
  start.environment.emplace_back("UCX_LOG_LEVEL", "info");  // makes every rank write lines that are not rtrun's
  const Ended ended = run(start);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("[rank 0] ["), Not(HasSubstr("[rank 1]"))));
  EXPECT_THAT(text_of(folder_.path() / "run/rank-1.log"), HasSubstr("UCX"));

  EXPECT_EQ(run(folder_.rtrun(JobFolder::short_run())).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "run/rank-1.log")) << "of the job before";
}

TEST_F(RunSeen, DrawsABarOnATerminalOnly) {
  if (::access("/usr/bin/script", X_OK) != 0) GTEST_SKIP() << "no `script` here to make a terminal";
  const auto seconds =
      std::vector<std::string>{"--set", "train.epochs=40", "--set", "data.batch=2", "--set", "evaluate.every_epochs=0"};
  EXPECT_THAT(run(on_a_terminal(seconds, "xterm")).out,
              AllOf(HasSubstr("\033[K"), ::testing::ContainsRegex("epoch [0-9]+/40 step ")));
  EXPECT_THAT(run(on_a_terminal(JobFolder::short_run(), "dumb")).out, Not(HasSubstr("\033")));
  EXPECT_THAT(run(folder_.rtrun(JobFolder::short_run())).out, Not(HasSubstr("\033")));
}

TEST_F(RunSeen, ColoursErrorsOnATerminalUnlessNoColorIsSet) {
  if (::access("/usr/bin/script", X_OK) != 0) GTEST_SKIP() << "no `script` here to make a terminal";
  ProgramStart start = on_a_terminal({"--set", "data.batch=0"}, "xterm");
  EXPECT_THAT(run(start).out, HasSubstr("\033[1;31merror:\033[0m"));
  start.unset.clear();
  start.environment.emplace_back("NO_COLOR", "1");
  EXPECT_THAT(run(start).out, AllOf(HasSubstr("error:"), Not(HasSubstr("\033[1;31m"))));
}

}  // namespace
}  // namespace troupe::testing
