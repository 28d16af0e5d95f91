// rtrun app.toml -- program: ranks that are a program of the user's own, here and by a remote shell.

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class ProgramJob : public ClusterTest {
 protected:
  /// rtrun with these arguments, and a program behind --.
  ProgramStart job(std::vector<std::string> arguments, const std::vector<std::string>& program) const {
    arguments.emplace_back("--");
    arguments.insert(arguments.end(), program.begin(), program.end());
    return folder_.rtrun(arguments);
  }
  ProgramStart script(const std::string& commands) const { return job({}, {"sh", "-c", commands}); }
  static std::string example(const std::string& name) { return std::string{EXAMPLES_FOLDER} + "/example_" + name; }
  /// Settings of two hosts that are this machine, as only the resolver knows, reached by a shell of the test's.
  std::vector<std::string> two_hosts() const {
    const auto file = folder_.path() / "data/shell";
    std::ofstream{file} << "#!/bin/sh\nexec sh -c \"$2\"\n";
    ::chmod(file.c_str(), 0700);
    return {"--set", "cluster.nodes=[\"127.1\", \"127.2\"]", "--set", "cluster.remote_shell=data/shell"};
  }
  std::string log_of_rank_1() const {
    std::ifstream in{folder_.path() / "run/rank-1.log"};
    return {std::istreambuf_iterator<char>{in}, {}};
  }
};

TEST_F(ProgramJob, TellsEachRankItsPlace) {
  Program rtrun{script("echo rank $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, at $MASTER_ADDR")};
  EXPECT_EQ(rtrun.wait(30s), 0) << rtrun.err();
  EXPECT_EQ(rtrun.out(), "rank 0 of 2, 0 of 2, at 127.0.0.1\n");
  EXPECT_EQ(log_of_rank_1(), "rank 1 of 2, 1 of 2, at 127.0.0.1\n");
}

TEST_F(ProgramJob, TrainsByALoopOfTheAppsOwn) {
  Program rtrun{job({}, {example("own_loop"), "app.toml"})};
  EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  EXPECT_THAT(rtrun.out(), HasSubstr("test accuracy "));
  EXPECT_EQ(rtrun.err(), "");
}

TEST_F(ProgramJob, CanLetOpenMpsThreadsPollBrieflyWithoutRtrun) {
  Program loop{{.arguments = {example("own_loop"), "app.toml", "train.steps=1000000"},
                .environment = {},
                .unset = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"},
                .folder = folder_.path()}};
  ASSERT_TRUE(loop.wait_until([](const Program& p) { return p.out().find("step 100:") != std::string::npos; }, 60s))
      << loop.err();
  std::ifstream environment{"/proc/" + std::to_string(loop.pid()) + "/environ"};
  const std::string variables{std::istreambuf_iterator<char>{environment}, {}};
  EXPECT_NE(variables.find("GOMP_SPINCOUNT=1000"), std::string::npos);
}

TEST_F(ProgramJob, ThatOnlyExchangesGradientsKeepsALog) {
  Program rtrun{job({}, {example("own_gradients")})};
  EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  EXPECT_EQ(rtrun.err(), "");
  std::ifstream in{folder_.path() / "run/log"};
  const auto log = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  ASSERT_EQ(log.size(), 3u) << log.dump(2);  // two epochs of 79 steps of 128 samples, and a part of the third
  EXPECT_EQ(log[0].at("iteration"), 79);
  EXPECT_EQ(log[2].at("iteration"), 200);
  EXPECT_NEAR(log[2].at("slope"), 3, 0.05);
  std::ifstream table{folder_.path() / "run/log.csv"};
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>{table}, {}, '\n'), 4);
}

TEST_F(ProgramJob, ConnectsActorsWithoutTraining) {
  Program rtrun{job({"--set", "cluster.nodes=\"local:3\""}, {example("hello")})};
  EXPECT_EQ(rtrun.wait(30s), 0) << rtrun.err();
  EXPECT_EQ(rtrun.out(), "peer 1 says 42\neverything finished\n");
}

TEST_F(ProgramJob, IsStartedForOneRankToo) {
  Program rtrun{job({"--set", "cluster.nodes=\"local:1\""}, {"sh", "-c", "echo $RANK of $WORLD_SIZE"})};
  EXPECT_EQ(rtrun.wait(30s), 0) << rtrun.err();
  EXPECT_EQ(rtrun.out(), "0 of 1\n");
}

TEST_F(ProgramJob, EndsWithTheExitCodeOfTheProgram) {
  Program rtrun{script("if [ $RANK = 1 ]; then echo no luck >&2; exit 7; fi")};
  EXPECT_EQ(rtrun.wait(30s), 7) << rtrun.err();
  EXPECT_THAT(rtrun.err(), AllOf(HasSubstr("rtrun: error: rank 1 failed with exit code 7: no luck"),
                                 HasSubstr("all that it wrote is in run/rank-1.log")));
}

TEST_F(ProgramJob, NamesTheRankThatWasKilledAndEndsTheOthersWithTheirChildren) {
  Program rtrun{script("if [ $RANK = 1 ]; then kill -9 $$; fi; sleep 60 & wait")};
  EXPECT_EQ(rtrun.wait(30s), 4) << rtrun.err();
  EXPECT_THAT(rtrun.err(), ContainsRegex("rtrun: error: rank 1 \\(process [0-9]+\\) was killed by SIGKILL"));
}

TEST_F(ProgramJob, PassesSignalsOn) {
  Program rtrun{script("trap 'echo asked to end; exit 75' TERM; echo ready; while :; do sleep 0.05; done")};
  ASSERT_TRUE(rtrun.wait_until([](const Program& p) { return p.out().find("ready") != std::string::npos; }, 30s));
  ASSERT_TRUE(becomes_true([&] { return log_of_rank_1() == "ready\n"; }, 30s));
  rtrun.signal(SIGTERM);
  EXPECT_EQ(rtrun.wait(30s), 75) << rtrun.err();
  EXPECT_EQ(rtrun.out(), "ready\nasked to end\n");
}

TEST_F(ProgramJob, EndsNoProgramByTheSignalThatAsksRanksWhatTheyDo) {
  Program rtrun{script("trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")};
  ASSERT_TRUE(rtrun.wait_until([](const Program& p) { return p.out().find("ready") != std::string::npos; }, 30s));
  ASSERT_TRUE(becomes_true([&] { return log_of_rank_1() == "ready\n"; }, 30s));
  rtrun.signal(SIGUSR1);
  const auto answered = [](const Program& p) { return p.err().find("SIGUSR1: ") != std::string::npos; };
  ASSERT_TRUE(rtrun.wait_until(answered, 30s));
  rtrun.signal(SIGTERM);
  EXPECT_EQ(rtrun.wait(30s), 143) << rtrun.err();
  EXPECT_EQ(rtrun.err().find("killed"), std::string::npos) << rtrun.err();
}

TEST_F(ProgramJob, DiesWithRtrun) {
  Program rtrun{script("echo ready; while :; do sleep 0.05; done")};
  ASSERT_TRUE(rtrun.wait_until([](const Program& p) { return p.out().find("ready") != std::string::npos; }, 30s));
  rtrun.signal(SIGKILL);
  EXPECT_EQ(rtrun.wait(30s), 137);
  EXPECT_TRUE(becomes_true([&] { return folder_.leftovers().find("process") == std::string::npos; }, 30s))
      << folder_.leftovers();
}

TEST_F(ProgramJob, LeavesSignalsOfTheProgramAsTheyAre) {
  // Bits 12, 24 and 9 of the masks: SIGPIPE and SIGXFSZ ignored, SIGUSR1 blocked.
  Program rtrun{job({"--set", "cluster.nodes=\"local:1\""}, {"grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"})};
  EXPECT_EQ(rtrun.wait(30s), 0) << rtrun.err();
  unsigned long long blocked = 1, ignored = 1;
  ASSERT_EQ(std::sscanf(rtrun.out().c_str(), "SigBlk: %llx SigIgn: %llx", &blocked, &ignored), 2) << rtrun.out();
  EXPECT_EQ(blocked & (1u << (SIGUSR1 - 1)), 0u);
  EXPECT_EQ(ignored & (1u << (SIGPIPE - 1) | 1u << (SIGXFSZ - 1)), 0u);
}

TEST_F(ProgramJob, TrainsOnHostsByARemoteShell) {
  Program rtrun{job(two_hosts(), {example("own_loop"), "app.toml"})};
  EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  EXPECT_THAT(rtrun.out(), HasSubstr("test accuracy "));
}

TEST_F(ProgramJob, EndsWithTheExitCodeOfAProgramOnAnotherHost) {
  Program rtrun{job(two_hosts(), {"sh", "-c",
                                  "echo secret in $TROUPE_SECRET_FILE; test -s $TROUPE_SECRET_FILE; "
                                  "read nothing; if [ $RANK = 1 ]; then exit 9; fi"})};
  EXPECT_EQ(rtrun.wait(30s), 9) << rtrun.err();
  EXPECT_THAT(rtrun.err(), HasSubstr("rtrun: error: rank 1 on 127.2 failed with exit code 9"));
  EXPECT_THAT(log_of_rank_1(), HasSubstr("secret in /proc/self/fd/"));
}

TEST_F(ProgramJob, PassesSignalsOnToHosts) {
  Program rtrun{job(two_hosts(), {"sh", "-c", "trap 'exit 75' TERM; echo ready; while :; do sleep 0.05; done"})};
  ASSERT_TRUE(rtrun.wait_until(
      [](const Program& p) {
        return p.err().find("ready") != std::string::npos || p.out().find("ready") != std::string::npos;
      },
      30s));
  ASSERT_TRUE(becomes_true([&] { return log_of_rank_1() == "ready\n"; }, 30s));
  rtrun.signal(SIGTERM);
  EXPECT_EQ(rtrun.wait(30s), 75) << rtrun.err();
}

TEST_F(ProgramJob, SaysWhatIsWrongBeforeAnythingStarts) {
  const std::vector<std::pair<ProgramStart, std::string>> wrong{
      {job({}, {"no-such-program"}), "there is no program no-such-program (the word after --) in PATH"},
      {job({}, {"./app.toml"}), "./app.toml, the program after --, cannot be executed; `chmod +x ./app.toml`"},
      {job({}, {"./nothing"}), "there is no program ./nothing"},
      {job({"--set", "train.epochs=3"}, {"true"}), "--set train.epochs does not reach a program after --"},
      {job({"--resume", "auto"}, {"true"}), "--resume does not reach a program after --"},
      {job({"--json"}, {"true"}),
       "--json changes what rtrun itself prints, and cannot be used with a program after --"},
      {job({}, {}), "there is no program after --: write `rtrun app.toml -- ./program"}};
  for (const auto& [start, text] : wrong) {
    Program rtrun{start};
    EXPECT_EQ(rtrun.wait(30s), 2) << rtrun.err();
    EXPECT_THAT(rtrun.err(), HasSubstr("rtrun: error: " + text));
  }
}

TEST_F(ProgramJob, IsNamedByASessionThatIsAlone) {
  ProgramStart start = folder_.rtrun();
  start.arguments = {example("own_loop"), "app.toml", "train.steps=5"};
  Program alone{start};
  EXPECT_EQ(alone.wait(60s), 0) << alone.err();
  EXPECT_THAT(alone.err(),
              AllOf(HasSubstr("troupe: cluster.nodes asks for 2 ranks, but no launcher started this process"),
                    HasSubstr("`rtrun app.toml -- PROGRAM ARGUMENTS`")));
}

TEST_F(ProgramJob, IsToldWhenItsSessionFindsNoDataAndDrawsDigits) {
  std::ofstream{folder_.path() / "lost.toml"} << "data = { path = 'nowhere', batch = 10 }\nmodel = { units = [8] }\n"
                                                 "train = { steps = 3 }\ncheckpoint = { every_steps = 0 }\n";
  ProgramStart start = folder_.rtrun();
  std::erase_if(start.environment, [](const auto& entry) { return entry.first == "TROUPE_DATA"; });
  start.environment.emplace_back("TROUPE_DATA", "");
  start.arguments = {example("own_loop"), "lost.toml"};
  Program program{start};
  EXPECT_EQ(program.wait(60s), 0) << program.err();
  EXPECT_THAT(program.err(), AllOf(HasSubstr("troupe: the run trains on generated digits"), HasSubstr("nowhere")));
  std::filesystem::remove(folder_.path() / "lost.toml");
  std::filesystem::remove_all(folder_.path() / "tmp/troupe");
}

TEST_F(ProgramJob, IsRefusedInARankOfAnotherLauncher) {
  ProgramStart start = folder_.rank(0, 2, "127.0.0.1", free_port());
  start.arguments.insert(start.arguments.end(), {"--", "true"});
  Program rtrun{start};
  EXPECT_EQ(rtrun.wait(30s), 2) << rtrun.err();
  EXPECT_THAT(rtrun.err(), HasSubstr("let that launcher start true itself, without rtrun"));
}

}  // namespace
}  // namespace troupe::testing
