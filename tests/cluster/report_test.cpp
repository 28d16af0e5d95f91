// SIGUSR1 makes a run report what it is doing.

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

using Report = ClusterTest;

std::string read_file(const std::filesystem::path& file) {
  std::ifstream in{file};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// Arguments that make it train for some seconds.
std::vector<std::string> some_seconds() {
  return {"--set", "train.epochs=60", "--set", "data.batch=2", "--set", "evaluate.every_epochs=0"};
}

bool said(const Program& program, const std::string& what) { return program.err().find(what) != std::string::npos; }

/// Requests the report; true if all of this text was in it.
bool asked_until(Program& program, const std::vector<std::string>& all) {
  const auto complete = [&](const Program& p) {
    return std::all_of(all.begin(), all.end(), [&](const std::string& what) { return said(p, what); });
  };
  program.signal(SIGUSR1);
  return program.wait_until(complete, 10s);
}

TEST_F(Report, OfEveryRankIsPrintedWhenTheLauncherIsAskedAndTrainingGoesOn) {
  Program rtrun{folder_.rtrun(some_seconds())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  EXPECT_TRUE(asked_until(rtrun, {"[rank 0] rtrun: rank 0 of 2 on node", "[rank 1] rtrun: rank 1 of 2 on node",
                                  " of 30000 steps committed, in epoch ", "[rank 0] rtrun: peer 1: sent ",
                                  "[rank 1] rtrun: peer 0: sent ", "[rank 1] rtrun: rank 0: gradients of "}))
      << rtrun.err();
  EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  EXPECT_NE(rtrun.out().find("Trained 30,000 steps"), std::string::npos) << rtrun.out();
}

TEST_F(Report, DoesNotBeginWhereItsTraceCannotBeWritten) {
  Program rtrun{folder_.rtrun({"--trace", "/proc/troupe/trace.json"})};
  EXPECT_EQ(rtrun.wait(20s), 3);
  EXPECT_NE(rtrun.err().find("the folder of report.trace"), std::string::npos) << rtrun.err();
}

TEST_F(Report, OfWhatEveryRankDidWhenIsOneTraceOfWhichAStepIsDrawn) {
  Program rtrun{folder_.rtrun({"--trace", "trace.json", "--set", "train.steps=12"})};
  EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  const std::string trace = read_file(folder_.path() / "trace.json");
  for (const char* part :
       {"\"rank 0 on ", "\"rank 1 on ", "\"compute stream\"", "\"forward, step 11\"", "\"backward, step 3, bucket 0\"",
        "\"update, step 3, bucket 0\"", "\"Device\"", "\"fill batch, step 5\"", "\"control lane\""})
    EXPECT_NE(trace.find(part), std::string::npos) << part;
  for (const char* part : {"trace.json.rank-0", "trace.json.rank-1"})
    EXPECT_FALSE(std::filesystem::exists(folder_.path() / part)) << part;
  ProgramStart start = folder_.rtrun({});
  start.arguments = {start.arguments.front(), "timeline", "trace.json", "--step", "7"};
  Program timeline{start};
  EXPECT_EQ(timeline.wait(20s), 0) << timeline.err();
  EXPECT_EQ(timeline.out(), "trace.svg\n");
  EXPECT_NE(read_file(folder_.path() / "trace.svg").find("Step 7: "), std::string::npos);
  start.arguments.back() = "12";
  Program beyond{start};
  EXPECT_EQ(beyond.wait(20s), 2);
  EXPECT_NE(beyond.err().find("it has steps 0 to 11"), std::string::npos) << beyond.err();
}

TEST_F(Report, OfOneRankIsPrintedWhenItIsAsked) {
  Program rtrun{folder_.rtrun(JobFolder::endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  const auto ranks = children_of(rtrun.pid());
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[1], SIGUSR1);
  EXPECT_TRUE(rtrun.wait_until([](const Program& p) { return said(p, "[rank 1] rtrun: peer 0: sent "); }, 10s))
      << rtrun.err();
  EXPECT_FALSE(said(rtrun, "rank 0 of 2")) << rtrun.err();
  rtrun.signal(SIGINT);
  EXPECT_EQ(rtrun.wait(20s), 130) << rtrun.err();
}

TEST_F(Report, OfOneProcessSaysThatThereAreNoOthers) {
  auto arguments = JobFolder::endless();
  arguments.insert(arguments.end(), {"--set", "cluster.nodes=\"local:1\""});
  Program rtrun{folder_.rtrun(arguments)};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  EXPECT_TRUE(asked_until(rtrun, {"rtrun: rank 0 of 1 on node", "rtrun: the job is this one process"})) << rtrun.err();
  rtrun.signal(SIGTERM);
  EXPECT_EQ(rtrun.wait(20s), 143) << rtrun.err();
}

TEST_F(Report, MayBeAskedForWhileRanksStart) {
  Program rtrun{folder_.rtrun(JobFolder::short_run())};
  ASSERT_TRUE(becomes_true([&] { return children_of(rtrun.pid()).size() == 2; }, 20s)) << rtrun.err();
  for (const pid_t rank : children_of(rtrun.pid())) ::kill(rank, SIGUSR1);
  EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
}

}  // namespace
}  // namespace troupe::testing
