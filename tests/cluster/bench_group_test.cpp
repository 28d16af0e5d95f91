// The events that rtbench group measures are as they should be: a process that dies is lost, once, and no other one is.

#include <signal.h>

#include <nlohmann/json.hpp>

#include "tests/cluster/job_folder.hpp"
#include "tests/support/network.hpp"

namespace troupe::testing {
namespace {

class BenchGroup : public ClusterTest {
 protected:
  ProgramStart rtbench(const std::vector<std::string>& arguments) const {
    ProgramStart start = folder_.rtrun();
    start.arguments = {RTBENCH_PROGRAM, "group"};
    start.arguments.insert(start.arguments.end(), arguments.begin(), arguments.end());
    return start;
  }
  /// The line that it printed; null: not exactly one.
  static nlohmann::json line_of(const Program& program) { return nlohmann::json::parse(program.out(), nullptr, false); }
  /// Runs it until it ends without an error.
  nlohmann::json measure(const std::vector<std::string>& arguments) const {
    Program program{rtbench(arguments)};
    EXPECT_EQ(program.wait(100s), 0) << program.err();
    const auto line = line_of(program);
    EXPECT_TRUE(line.is_object()) << program.out();
    return line.is_object() ? line : nlohmann::json::object();
  }
};

class BenchGroupOver : public BenchGroup, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, BenchGroupOver, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(BenchGroupOver, TellsEverySurvivorOnceOfAKilledProcess) {
  const auto line = measure({"--what", "death", "--rounds", "2", "--transport", GetParam(), "--table"});
  EXPECT_EQ(line.value("rounds", 0), 2) << line;
  EXPECT_EQ(line.value("strange", -1), 0) << line;
  EXPECT_GT(line["down_ms"].value("median", 0.0), 0) << line;
  EXPECT_GT(line["pidfd_ms"].value("median", 0.0), 0) << line;
  EXPECT_GT(line["resident_mb"].value("median", 0.0), 0) << line;
}

TEST_P(BenchGroupOver, TellsOfAStoppedProcessAfterItsSilence) {
  const auto line =
      measure({"--what", "silence", "--how", "stop", "--rounds", "1", "--dead-ms", "3000", "--transport", GetParam()});
  EXPECT_EQ(line.value("rounds", 0), 1) << line;
  EXPECT_EQ(line.value("strange", -1), 0) << line;
  EXPECT_GE(line["down_ms"].value("median", 0.0), 2700) << line;
}

TEST_P(BenchGroupOver, KeepsAProcessThatPauses) {
  const auto line =
      measure({"--what", "silence", "--how", "pause", "--rounds", "1", "--dead-ms", "6000", "--transport", GetParam()});
  EXPECT_EQ(line.value("lost", -1), 0) << line;
  EXPECT_GT(line.value("suspected", 0), 0) << line;
  EXPECT_TRUE(line.value("clean", false)) << line;
}

TEST_P(BenchGroupOver, LosesNobodyUnderLoad) {
  const auto line = measure({"--what", "silence", "--how", "load", "--processes", "4", "--seconds", "1", "--dead-ms",
                             "10000", "--transport", GetParam()});
  EXPECT_EQ(line.value("lost", -1), 0) << line;
  EXPECT_GT(line.value("messages", 0), 0) << line;
  EXPECT_TRUE(line.value("clean", false)) << line;
}

TEST_P(BenchGroupOver, LetsACrowdJoinHearAndLeave) {
  const auto line = measure({"--what", "crowd", "--processes", "6", "--transport", GetParam()});
  EXPECT_TRUE(line.value("clean", false)) << line;
  EXPECT_GT(line.value("join_ms", 0.0), 0) << line;
  EXPECT_GT(line["resident_mb"].value("max", 0.0), 0) << line;
}

class BenchGroupBetweenNamespaces : public BenchGroup {
 protected:
  void SetUp() override {
    BenchGroup::SetUp();
    if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_F(BenchGroupBetweenNamespaces, TellsEverySurvivorOnceOfAKilledProcess) {
  const auto line = measure({"--what", "death", "--rounds", "1", "--between", "namespaces"});
  EXPECT_EQ(line.value("rounds", 0), 1) << line;
  EXPECT_EQ(line.value("strange", -1), 0) << line;
}

TEST_F(BenchGroupBetweenNamespaces, TellsBothSidesOfACutLink) {
  const auto line = measure({"--what", "silence", "--how", "cut", "--rounds", "2", "--dead-ms", "3000"});
  EXPECT_EQ(line.value("rounds", 0), 2) << "the link is mended after a round";
  EXPECT_EQ(line.value("strange", -1), 0) << line;
  EXPECT_GE(line["down_ms"].value("median", 0.0), 2700) << line;
}

TEST_F(BenchGroup, TellsWhatItKnowsAtCtrlCAndLeavesNoProcess) {
  Program program{rtbench({"--what", "silence", "--how", "load", "--processes", "3"})};
  const auto talks = [](const Program& p) { return p.err().find("compute and talk") != std::string::npos; };
  ASSERT_TRUE(program.wait_until(talks, 60s)) << program.err();
  const auto members = children_of(program.pid());
  EXPECT_EQ(members.size(), 3u);
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(20s), 1) << program.err();
  EXPECT_NE(program.err().find("stopped by a signal"), std::string::npos) << program.err();
  EXPECT_EQ(line_of(program).value("lost", -1), 0) << program.out();
  for (const pid_t member : members) EXPECT_NE(::kill(member, 0), 0) << "process " << member << " lives on";
}

TEST_F(BenchGroup, TakesItsProcessesAlongWhenItIsKilled) {
  Program program{rtbench({"--what", "silence", "--how", "load", "--processes", "3"})};
  const auto talks = [](const Program& p) { return p.err().find("compute and talk") != std::string::npos; };
  ASSERT_TRUE(program.wait_until(talks, 60s)) << program.err();
  EXPECT_EQ(children_of(program.pid()).size(), 3u);
  program.signal(SIGKILL);
  EXPECT_EQ(program.wait(20s), 128 + SIGKILL);
  EXPECT_TRUE(becomes_true([&] { return folder_.leftovers().empty(); }, 10s)) << folder_.leftovers();
}

TEST_F(BenchGroup, SaysThatSharedMemoryDoesNotReachOtherNamespaces) {
  Program program{rtbench({"--between", "namespaces", "--transport", "shm"})};
  EXPECT_EQ(program.wait(60s), 2) << program.out();
  EXPECT_NE(program.err().find("--transport tcp"), std::string::npos) << program.err();
}

}  // namespace
}  // namespace troupe::testing
