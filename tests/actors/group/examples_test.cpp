#include <gmock/gmock.h>
#include <signal.h>

#include <cstdio>
#include <deque>
#include <fstream>
#include <iterator>

#include "tests/support/process.hpp"
#include "tests/transports/bootstrap_ranks.hpp"
#include "transports/ucx/ucx_transport.hpp"

// The examples, started as a person would.
namespace troupe::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kLong = std::chrono::seconds(40);
const std::vector<std::string> kPlaceVariables{"RANK",        "WORLD_SIZE",         "LOCAL_RANK",      "MASTER_ADDR",
                                               "MASTER_PORT", "TROUPE_SECRET_FILE", "TROUPE_LISTEN_FD"};

/// One process a rank, on a port that was free a moment ago.
std::deque<testing::Program> start(const std::vector<std::string>& arguments, std::uint32_t size,
                                   const std::string& transports = {}) {
  std::uint16_t port = 0;
  {
    const testing::QuietPort free;
    port = free.port();
  }
  std::deque<testing::Program> all;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    testing::ProgramStart start{.arguments = arguments,
                                .environment = {{"RANK", std::to_string(rank)},
                                                {"WORLD_SIZE", std::to_string(size)},
                                                {"LOCAL_RANK", std::to_string(rank)},
                                                {"MASTER_ADDR", "127.0.0.1"},
                                                {"MASTER_PORT", std::to_string(port)}},
                                .unset = {"TROUPE_SECRET_FILE", "TROUPE_LISTEN_FD"}};
    if (!transports.empty()) start.environment.emplace_back("UCX_TLS", transports);
    all.emplace_back(start);
  }
  return all;
}

/// The time that a stage of the pipeline reports; -1 if it reports none.
int milliseconds_of(const testing::Program& stage) {
  int took = -1;
  const std::size_t at = stage.out().find(" tensors of 1 MiB in ");
  if (at != std::string::npos) std::sscanf(stage.out().c_str() + at, " tensors of 1 MiB in %d ms", &took);
  return took;
}

class Examples : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!ucx_available()) GTEST_SKIP() << "this build has no UCX, over which processes exchange messages";
  }
};

TEST_F(Examples, PingBetweenTwoProcesses) {
  auto ranks = start({PING_PROGRAM}, 2);
  for (auto& rank : ranks) EXPECT_EQ(rank.wait(kLong), 0) << rank.err();
  EXPECT_THAT(ranks[0].out(), AllOf(HasSubstr("everything finished"), Not(HasSubstr("pings"))));
  EXPECT_THAT(ranks[1].out(),
              AllOf(HasSubstr("10000 pings, "), HasSubstr(" us there and back"), HasSubstr("everything finished")));
}

TEST_F(Examples, HelloAsksTheNextProcess) {
  auto ranks = start({HELLO_PROGRAM}, 3);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks[rank].wait(kLong), 0) << ranks[rank].err();
    EXPECT_EQ(ranks[rank].out(), text("peer ", (rank + 1) % 3, " says 42\neverything finished\n"));
  }
}

TEST_F(Examples, MeasureSendsTypesOfItsOwn) {
  auto ranks = start({MEASURE_PROGRAM}, 2);
  for (auto& rank : ranks) {
    EXPECT_EQ(rank.wait(kLong), 0) << rank.err();
    EXPECT_EQ(rank.out(), "farthest: 3, 4\neverything finished\n");
  }
}

/// The page shows the same program that is compiled here.
TEST(ExamplesAlone, HelloAndMeasureStandInTheirPage) {
  const auto read = [](const std::string& path) {
    std::ifstream in(std::string(SOURCE_FOLDER) + path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  for (const char* name : {"hello.cpp", "measure.cpp"}) {
    const std::string program = read(std::string("/apps/examples/") + name);
    ASSERT_THAT(program, AllOf(HasSubstr("int main()"), Not(HasSubstr("using namespace troupe"))));
    EXPECT_THAT(read("/docs/remote-actors.md"), HasSubstr("```cpp\n" + program + "```\n"));
  }
}

TEST_F(Examples, PipelineGoesAtThePaceOfItsSlowestStage) {
  auto ranks = start({PIPELINE_PROGRAM}, 3);
  for (auto& rank : ranks) EXPECT_EQ(rank.wait(kLong), 0) << rank.err();
  EXPECT_THAT(ranks[0].out(), AllOf(HasSubstr("reader: 100 tensors"), HasSubstr("at most 4 on their way")));
  EXPECT_THAT(ranks[1].out(), AllOf(HasSubstr("worker: 100 tensors"), HasSubstr("at most 4 on their way")));
  EXPECT_THAT(ranks[2].out(), HasSubstr("writer: 100 tensors"));
  EXPECT_GE(milliseconds_of(ranks[2]), 200);  // 2 ms each
  EXPECT_GE(milliseconds_of(ranks[0]), 170);  // it may be ahead by what is on its way and waits at the two others
}

TEST_F(Examples, PipelineSendsItsTensorsOverTcpToo) {
  auto ranks = start({PIPELINE_PROGRAM}, 3, "tcp,self");
  for (auto& rank : ranks) EXPECT_EQ(rank.wait(kLong), 0) << rank.err();
  EXPECT_THAT(ranks[2].out(), HasSubstr("writer: 100 tensors"));
}

TEST_F(Examples, PipelineEndsWithALostPeerWhenAProcessIsKilled) {
  auto ranks = start({PIPELINE_PROGRAM, "1000000"}, 3, "tcp,self");  // more than can be written before the signal
  const auto is_ready = [](const testing::Program& rank) { return rank.out().find("ready") != std::string::npos; };
  ASSERT_TRUE(ranks[0].wait_until(is_ready, kLong)) << ranks[0].err();  // the last to be
  ranks[2].signal(SIGKILL);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ranks[i].wait(kLong), 4) << ranks[i].err();
    EXPECT_THAT(ranks[i].err(), HasSubstr("example_pipeline: "));
  }
}

TEST(ExamplesAlone, PingThemselves) {
  testing::Program alone({.arguments = {PING_PROGRAM}, .unset = kPlaceVariables});
  EXPECT_EQ(alone.wait(kLong), 0) << alone.err();
  EXPECT_THAT(alone.out(), HasSubstr("10000 pings, "));
}

TEST(ExamplesAlone, SayHowToStartThem) {
  testing::Program argument({.arguments = {PING_PROGRAM, "--fast"}, .unset = kPlaceVariables});
  EXPECT_EQ(argument.wait(kLong), 2);
  EXPECT_THAT(argument.err(), HasSubstr("usage: example_ping"));
  testing::Program pipeline({.arguments = {PIPELINE_PROGRAM}, .unset = kPlaceVariables});
  EXPECT_EQ(pipeline.wait(kLong), 2);
  EXPECT_THAT(pipeline.err(), HasSubstr("WORLD_SIZE=3"));
  testing::Program none({.arguments = {PIPELINE_PROGRAM, "0"}, .unset = kPlaceVariables});
  EXPECT_EQ(none.wait(kLong), 2);
  EXPECT_THAT(none.err(), HasSubstr("usage: example_pipeline [TENSORS]"));
  testing::Program half({.arguments = {PING_PROGRAM}, .environment = {{"RANK", "0"}}, .unset = kPlaceVariables});
  EXPECT_EQ(half.wait(kLong), 3);
  EXPECT_THAT(half.err(), HasSubstr("WORLD_SIZE"));
}

}  // namespace
}  // namespace troupe::test
