// rtrun on this machine, from the start to a normal end or a signal.

#include <signal.h>

#include <fstream>
#include <iterator>

#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

using LocalJob = ClusterTest;

/// Trains until it is ended, and never takes a silent rank for dead.
std::vector<std::string> endless_and_patient() {
  auto arguments = JobFolder::endless();
  arguments.insert(arguments.end(), {"--set", "faults.dead_ms=20000"});
  return arguments;
}

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>{file}, {}};
}

TEST_F(LocalJob, TrainsToTheEndAndLeavesItsLog) {
  Program rtrun{folder_.rtrun()};
  ASSERT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  EXPECT_TRUE(rtrun.out().starts_with("Data: ")) << rtrun.out();
  EXPECT_NE(rtrun.out().find("Num process (COMM_WORLD): 2\n"), std::string::npos) << rtrun.out();
  EXPECT_NE(rtrun.out().find("\n2 "), std::string::npos) << rtrun.out();
  EXPECT_NE(rtrun.out().find("samples/s, best test accuracy"), std::string::npos) << rtrun.out();
  EXPECT_EQ(rtrun.err(), "");
  EXPECT_NE(file_text(folder_.path() / "run/log").find("validation/main/accuracy"), std::string::npos);
}

TEST_F(LocalJob, RunsInOneProcessWhenOneRankIsAskedFor) {
  Program rtrun{folder_.rtrun({"--set", "cluster.nodes=\"local:1\""})};
  ASSERT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  EXPECT_NE(rtrun.out().find("Num process (COMM_WORLD): 1\n"), std::string::npos) << rtrun.out();
}

TEST_F(LocalJob, OfOneRankLetsOpenMpsThreadsPollAsBrieflyAsThoseOfSeveralUnlessTheUserDecides) {
  for (const bool decided : {false, true}) {
    auto arguments = JobFolder::endless();
    arguments.insert(arguments.end(), {"--set", "cluster.nodes=\"local:1\""});
    ProgramStart start = folder_.rtrun(arguments);
    if (decided)
      start.environment.emplace_back("OMP_WAIT_POLICY", "passive");
    else
      start.unset = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"};
    Program rtrun{start};
    ASSERT_TRUE(rtrun.wait_until(trains, 60s)) << rtrun.err();
    const std::string environment = file_text("/proc/" + std::to_string(rtrun.pid()) + "/environ");
    EXPECT_EQ(environment.find("GOMP_SPINCOUNT=1000") != environment.npos, !decided);
    rtrun.signal(SIGTERM);
    EXPECT_EQ(rtrun.wait(60s), 128 + SIGTERM);
  }
}

TEST_F(LocalJob, EndsAfterTheStepsThatWereAskedFor) {
  Program rtrun{folder_.rtrun({"--set", "train.steps=7"})};
  ASSERT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  EXPECT_NE(rtrun.out().find("Trained 7 steps"), std::string::npos) << rtrun.out();
}

TEST_F(LocalJob, Ends130AfterCtrlCWithItsLastLine) {
  Program rtrun{folder_.rtrun(JobFolder::endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  rtrun.signal(SIGINT);
  EXPECT_EQ(rtrun.wait(20s), 130) << rtrun.err();
  EXPECT_NE(rtrun.out().find("Stopped after"), std::string::npos) << rtrun.out();
  EXPECT_EQ(rtrun.err().find("error"), std::string::npos) << rtrun.err();
}

TEST_F(LocalJob, Ends143AfterSigterm) {
  Program rtrun{folder_.rtrun(JobFolder::endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  rtrun.signal(SIGTERM);
  EXPECT_EQ(rtrun.wait(20s), 143) << rtrun.err();
  EXPECT_EQ(rtrun.err().find("error"), std::string::npos) << rtrun.err();
}

TEST_F(LocalJob, StopsInOneProcessToo) {
  auto arguments = JobFolder::endless();
  arguments.insert(arguments.end(), {"--set", "cluster.nodes=\"local:1\""});
  Program rtrun{folder_.rtrun(arguments)};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  rtrun.signal(SIGINT);
  EXPECT_EQ(rtrun.wait(20s), 130) << rtrun.err();
}

TEST_F(LocalJob, StopsAndContinuesWithAllItsRanksAtCtrlZ) {
  Program rtrun{folder_.rtrun(JobFolder::endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  const auto stopped = [](pid_t pid) {
    std::ifstream file{"/proc/" + std::to_string(pid) + "/stat"};
    return std::string{std::istreambuf_iterator<char>{file}, {}}.find(") T ") != std::string::npos;
  };
  auto processes = children_of(rtrun.pid());
  processes.push_back(rtrun.pid());
  rtrun.signal(SIGTSTP);
  EXPECT_TRUE(becomes_true([&] { return std::all_of(processes.begin(), processes.end(), stopped); }, 10s));
  rtrun.signal(SIGCONT);
  EXPECT_TRUE(becomes_true([&] { return std::none_of(processes.begin(), processes.end(), stopped); }, 10s));
  rtrun.signal(SIGINT);
  EXPECT_EQ(rtrun.wait(20s), 130) << rtrun.err();
}

TEST_F(LocalJob, EndsAtOnceAfterASecondSignalThoughARankIsStuck) {
  Program rtrun{folder_.rtrun(endless_and_patient())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  const auto ranks = children_of(rtrun.pid());
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[1], SIGSTOP);
  rtrun.signal(SIGINT);
  EXPECT_EQ(rtrun.wait(300ms), -1) << "it should have waited for the step";
  rtrun.signal(SIGINT);
  EXPECT_EQ(rtrun.wait(5s), 130) << rtrun.err();
}

class LocalJobOfRanks : public LocalJob, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(, LocalJobOfRanks, ::testing::Values("1", "2"),
                         [](const auto& tested) { return std::string{"Of"} + tested.param; });

/// timeout(1) and batch systems signal a process, and at once the group in which it is.
TEST_P(LocalJobOfRanks, EndsAfterASignalThatItGetsTwiceAsAfterOne) {
  auto arguments = JobFolder::endless();
  arguments.insert(arguments.end(), {"--set", std::string{"cluster.nodes=local:"} + GetParam()});
  Program rtrun{folder_.rtrun(arguments)};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  for (int i = 0; i < 20; ++i) rtrun.signal(SIGINT);  // some of them are one to the kernel
  EXPECT_EQ(rtrun.wait(20s), 130) << rtrun.err();
  EXPECT_NE(rtrun.out().find("Stopped after"), std::string::npos) << rtrun.out() << rtrun.err();
}

TEST_F(LocalJob, KillsRanksThatDoNotStopInTime) {
  auto arguments = endless_and_patient();
  arguments.insert(arguments.end(), {"--set", "faults.stop_s=1"});
  Program rtrun{folder_.rtrun(arguments)};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  const auto ranks = children_of(rtrun.pid());
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[1], SIGSTOP);
  rtrun.signal(SIGTERM);
  EXPECT_EQ(rtrun.wait(10s), 143) << rtrun.err();
  EXPECT_NE(rtrun.err().find("killed"), std::string::npos) << rtrun.err();
}

}  // namespace
}  // namespace troupe::testing
