// What rtbench cannot measure is an error and not a figure.

#include <gmock/gmock.h>
#include <signal.h>

#include "tests/cluster/job_folder.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::testing {
namespace {

using ::testing::HasSubstr;

class Bench : public ClusterTest {
 protected:
  void SetUp() override {}  // one process: no ranks that talk
  ProgramStart rtbench(std::vector<std::string> arguments) const {
    ProgramStart start = folder_.rtrun();
    arguments.insert(arguments.begin(), RTBENCH_PROGRAM);
    start.arguments = std::move(arguments);
    return start;
  }
};

TEST_F(Bench, RefusesToReportASpeedOfTooFewSteps) {
  const std::string data = "data.path=\"" + (folder_.path() / "data").string() + "\"";
  Program rtbench{this->rtbench({"train", "--np", "1", "--seconds", "0.5", "--batch", "5000", "--set", data})};
  EXPECT_EQ(rtbench.wait(60s), 2) << rtbench.out();
  EXPECT_EQ(rtbench.out(), "");
  EXPECT_NE(rtbench.err().find("measured too short"), std::string::npos) << rtbench.err();
}

TEST_F(Bench, OfTrainingStartsItselfAsEachRank) {
  Program rtbench{this->rtbench({"train", "--case", "mlp", "--np", "2", "--seconds", "5", "--batch", "1"})};
  EXPECT_EQ(rtbench.wait(60s), 0) << rtbench.err();
  EXPECT_THAT(rtbench.out(), HasSubstr("\"np\":2,\"unit\":\"samples/s\",\"v\":["));
}

TEST_F(Bench, EndsWith2ForArgumentsThatItDoesNotKnow) {
  Program rtbench{this->rtbench({"train", "--such", "1"})};
  EXPECT_EQ(rtbench.wait(60s), 2) << rtbench.out();
  EXPECT_NE(rtbench.err().find("--such"), std::string::npos) << rtbench.err();
}

/// Messages between two processes go over UCX.
class BenchOfMessages : public Bench {
 protected:
  void SetUp() override {
    if (!ucx_available()) GTEST_SKIP() << "this build has no UCX, whose messages rtbench measures";
  }
};

TEST_F(BenchOfMessages, OfEnduranceCountsEachMessageAndTensorOnce) {
  for (const std::string transport : {"shm", "tcp"}) {
    Program rtbench{this->rtbench(
        {"messages", "--what", "endurance", "--transport", transport, "--messages", "200000", "--tensors", "500"})};
    EXPECT_EQ(rtbench.wait(100s), 0) << rtbench.err();
    for (const std::string impl : {"inline", "scheduled"}) EXPECT_THAT(rtbench.out(), HasSubstr('"' + impl + '"'));
    EXPECT_THAT(rtbench.out(), HasSubstr("\"messages\":[200000]"));
    EXPECT_THAT(rtbench.out(), HasSubstr("\"tensors\":[500]"));
    EXPECT_THAT(rtbench.out(), HasSubstr("\"dropped\":[0]"));
    EXPECT_THAT(rtbench.out(), HasSubstr("\"rss_growth_pct\":["));
  }
}

TEST_F(BenchOfMessages, OfEnduranceTellsWhatItKnowsWhenASignalEndsIt) {
  Program rtbench{this->rtbench({"messages", "--what", "endurance", "--messages", "1000000000000"})};
  const auto begun = [](const Program& it) { return it.err().find("million/s") != std::string::npos; };
  ASSERT_TRUE(rtbench.wait_until(begun, 30s)) << rtbench.err();
  rtbench.signal(SIGINT);
  EXPECT_EQ(rtbench.wait(30s), 1) << rtbench.err();
  EXPECT_THAT(rtbench.out(), HasSubstr("\"stopped\":[1]")) << rtbench.err();
}

TEST_F(BenchOfMessages, OfAFloodCountsEachMessageAsReadOrRefusedAndTellsMemory) {
  for (const std::string transport : {"shm", "tcp"}) {
    Program rtbench{this->rtbench({"messages", "--what", "flood", "--transport", transport, "--seconds", "0.5",
                                   "--memory-mb", "1", "--reads", "1000", "--sizes", "100,100000"})};
    EXPECT_EQ(rtbench.wait(100s), 0) << rtbench.err();  // it compares the counts itself
    for (const std::string impl : {"inline", "scheduled"}) EXPECT_THAT(rtbench.out(), HasSubstr('"' + impl + '"'));
    EXPECT_THAT(rtbench.out(), HasSubstr("\"memory_mb\":1,"));
    for (const std::string figure : {"sender_peak_mb", "reader_after_mb", "refused", "longest_send_us"})
      EXPECT_THAT(rtbench.out(), HasSubstr('"' + figure + "\":["));
  }
}

}  // namespace
}  // namespace troupe::testing
