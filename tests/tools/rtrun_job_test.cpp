#include <gtest/gtest.h>
#include <signal.h>

#include "tools/rtrun/job.hpp"

namespace troupe::rtrun {
namespace {

RankEnd exited(std::uint32_t rank, int code) { return {.rank = rank, .pid = 100, .exit_code = code}; }
RankEnd killed(std::uint32_t rank, int signal) { return {.rank = rank, .pid = 100, .signal = signal}; }
RankEnd killed_by_launcher(std::uint32_t rank) {
  return {.rank = rank, .pid = 100, .signal = SIGKILL, .by_launcher = true};
}

TEST(Verdict, IsSilentAboutAJobThatIsDone) {
  const Verdict verdict = judge({exited(1, 0), exited(0, 0)}, 0);
  EXPECT_EQ(verdict.exit_code, 0);
  EXPECT_EQ(verdict.text, "");
}

TEST(Verdict, BlamesTheKilledRankEvenWhenItsPeersEndWasSeenFirst) {
  const Verdict verdict = judge({exited(0, 4), killed(1, SIGKILL)}, 0);
  EXPECT_EQ(verdict.exit_code, 4);
  EXPECT_NE(verdict.text.find("rank 1 (process 100) was killed by SIGKILL"), std::string::npos) << verdict.text;
}

TEST(Verdict, SaysWhichRankItIsAbout) {
  EXPECT_EQ(judge({exited(0, 4), killed(1, SIGKILL)}, 0).culprit, 1u);
  EXPECT_EQ(judge({exited(0, 4), exited(2, 3), exited(1, 2)}, 0).culprit, 2u);
  EXPECT_EQ(judge({exited(0, 0), killed_by_launcher(1)}, 0).culprit, 1u);
  EXPECT_EQ(judge({exited(0, 0)}, 0).culprit, std::nullopt);
}

TEST(Verdict, NamesEveryRankThatWasKilled) {
  const Verdict verdict =
      judge({exited(0, 4), killed(3, SIGKILL), killed(1, SIGBUS), killed(2, SIGKILL), killed_by_launcher(4)}, 0);
  EXPECT_EQ(verdict.exit_code, 4);
  EXPECT_EQ(verdict.culprit, 3u);
  EXPECT_TRUE(verdict.text.starts_with("rank 3 (process 100) was killed by SIGKILL")) << verdict.text;
  EXPECT_TRUE(verdict.text.ends_with("; so were rank 1 (process 100) by SIGBUS and rank 2 (process 100) by SIGKILL"))
      << verdict.text;
}

TEST(Verdict, NamesEveryRankThatWasKilledOnOtherHosts) {
  RankEnd first = exited(1, 128 + SIGKILL);
  RankEnd second = exited(2, 128 + SIGKILL);
  first.host = "node7";
  second.host = "node8";
  const Verdict verdict = judge({exited(0, 4), first, second}, 0);
  EXPECT_TRUE(verdict.text.ends_with("; so was rank 2 on node8 by SIGKILL")) << verdict.text;
}

TEST(Verdict, NamesRanksThatWereKilledThoughASignalHadBeenPassedOn) {
  const Verdict verdict = judge({killed(1, SIGKILL), killed(2, SIGTERM), killed(0, SIGKILL)}, SIGTERM);
  EXPECT_EQ(verdict.exit_code, 128 + SIGTERM);
  EXPECT_TRUE(verdict.text.ends_with("; so was rank 0 (process 100) by SIGKILL")) << verdict.text;
}

TEST(Verdict, SaysThatASingleRankWasAskedToStop) {
  const Verdict verdict = judge({exited(1, kPreempted), exited(0, 0)}, 0);
  EXPECT_EQ(verdict.exit_code, kPreempted);
  EXPECT_EQ(verdict.text, "rank 1 ended with exit code 75: SIGTERM ended it, and the job's state is saved");
}

TEST(Verdict, NamesNoSettingOfAProgramThatHasNone) {
  RankEnd stopped = killed_by_launcher(1);
  stopped.stopped = std::chrono::milliseconds{2500};
  EXPECT_TRUE(judge({exited(0, 4), stopped}, 0).text.ends_with("; faults.dead_ms says how long it may be"));
  EXPECT_TRUE(judge({exited(0, 4), stopped}, 0, "").text.ends_with(" and was killed"));
}

TEST(Verdict, NamesARankThatWasKilledForBeingStopped) {
  RankEnd stopped = killed_by_launcher(1);
  stopped.stopped = std::chrono::milliseconds{2500};
  const Verdict verdict = judge({exited(0, 4), stopped, killed_by_launcher(2)}, 0);
  EXPECT_EQ(verdict.exit_code, 4);
  EXPECT_EQ(verdict.culprit, 1u);
  EXPECT_TRUE(verdict.text.starts_with("rank 1 (process 100) was stopped for 2.5 s")) << verdict.text;
}

TEST(Verdict, HintsAtMemoryWhenTheKernelsKillerWasAtWork) {
  RankEnd end = killed(2, SIGKILL);
  end.out_of_memory = true;
  EXPECT_NE(judge({end}, 0).text.find("memory"), std::string::npos);
}

TEST(Verdict, NamesACrashBySignalAndMeaning) {
  EXPECT_NE(judge({killed(0, SIGSEGV), killed_by_launcher(1)}, 0).text.find("SIGSEGV (Segmentation fault)"),
            std::string::npos);
}

TEST(Verdict, PassesOnTheExitCodeOfTheFirstRankThatFailedByItself) {
  const Verdict verdict = judge({exited(0, 4), exited(2, 3), exited(1, 2)}, 0);
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_NE(verdict.text.find("rank 2"), std::string::npos) << verdict.text;
}

TEST(Verdict, NamesTheRankThatTheOthersLostAndThatDidNotEnd) {
  const Verdict verdict = judge({exited(2, 4), exited(0, 4), killed_by_launcher(1)}, 0);
  EXPECT_EQ(verdict.exit_code, 4);
  EXPECT_NE(verdict.text.find("rank 1 was lost"), std::string::npos) << verdict.text;
}

TEST(Verdict, NamesTheHostWhoseRemoteShellDied) {
  RankEnd end = killed(1, SIGKILL);
  end.host = "node7";
  const Verdict verdict = judge({exited(0, 4), end}, 0);
  EXPECT_EQ(verdict.exit_code, 4);
  EXPECT_EQ(verdict.text, "the remote shell of rank 1 on node7 (process 100) was killed by SIGKILL");
}

TEST(Verdict, TakesARemoteShellsOwnFailureForAHostThatCannotBeReached) {
  RankEnd end = exited(1, 255);
  end.host = "node7";
  const Verdict never_there = judge({end, killed_by_launcher(0)}, 0);
  EXPECT_EQ(never_there.exit_code, 3);
  EXPECT_NE(never_there.text.find("the remote shell of rank 1 on node7 failed: node7 cannot be reached"),
            std::string::npos)
      << never_there.text;
  EXPECT_EQ(judge({exited(0, 4), end}, 0).exit_code, 4) << "it was lost on the way";
}

TEST(Verdict, SaysThatPathsMustBeTheSameWhereACommandWasNotFound) {
  RankEnd end = exited(0, 127);
  end.host = "node7";
  const Verdict verdict = judge({end}, 0);
  EXPECT_NE(verdict.text.find("rank 0 on node7 failed with exit code 127"), std::string::npos) << verdict.text;
  EXPECT_NE(verdict.text.find("same path on every host"), std::string::npos) << verdict.text;
}

TEST(Verdict, Is4WhenRanksOnlyLostEachOther) { EXPECT_EQ(judge({exited(0, 4), exited(1, 4)}, 0).exit_code, 4); }

TEST(Verdict, Is128PlusTheSignalThatWasPassedOn) {
  EXPECT_EQ(judge({exited(0, 130), exited(1, 0)}, SIGINT).exit_code, 130);
  EXPECT_EQ(judge({exited(0, 143), exited(1, 143)}, SIGTERM).exit_code, 143);
  EXPECT_EQ(judge({exited(0, 143)}, SIGTERM).text, "");
}

TEST(Verdict, ForgivesARankThatTheSignalMetBeforeItWasReady) {
  EXPECT_EQ(judge({killed(0, SIGINT), exited(1, 130)}, SIGINT).text, "");
}

TEST(Verdict, SaysWhenRanksHadToBeKilledAfterASignal) {
  const Verdict verdict = judge({exited(0, 130), killed_by_launcher(1)}, SIGINT);
  EXPECT_EQ(verdict.exit_code, 130);
  EXPECT_NE(verdict.text, "");
}

TEST(Verdict, NamesARankThatStayedWhenTheOthersHadEndedWell) {
  const Verdict verdict = judge({exited(0, 0), killed_by_launcher(1)}, 0);
  EXPECT_EQ(verdict.exit_code, 1);
  EXPECT_NE(verdict.text.find("rank 1"), std::string::npos) << verdict.text;
}

}  // namespace
}  // namespace troupe::rtrun
