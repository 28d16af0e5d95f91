// A process of a job on this machine is killed without warning.

#include <signal.h>

#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

class Loss : public ClusterTest, public ::testing::WithParamInterface<std::size_t> {};

TEST_P(Loss, OfARankEndsTheJobWith4AndIsNamedByTheOthers) {
  Program rtrun{folder_.rtrun(JobFolder::endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  const auto ranks = children_of(rtrun.pid());
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[GetParam()], SIGKILL);
  EXPECT_EQ(rtrun.wait(10s), 4) << rtrun.err();

  const std::string dead = "rank " + std::to_string(GetParam());
  const std::string witness = "[rank " + std::to_string(1 - GetParam()) + "] rtrun: error: ";
  const auto line = rtrun.err().find(witness);
  ASSERT_NE(line, std::string::npos) << rtrun.err();
  const std::string said = rtrun.err().substr(line, rtrun.err().find('\n', line) - line);
  for (const std::string& word : {dead, std::string{"node"}, std::string{"step"}})
    EXPECT_NE(said.find(word, witness.size()), std::string::npos) << said << " does not tell the " << word;
  EXPECT_NE(rtrun.err().find("rtrun: error: " + dead), std::string::npos) << rtrun.err();
  EXPECT_NE(rtrun.err().find("was killed by SIGKILL"), std::string::npos) << rtrun.err();
}

INSTANTIATE_TEST_SUITE_P(EitherRank, Loss, ::testing::Values(0u, 1u));

using Launcher = ClusterTest;

TEST_F(Launcher, TakesItsRanksAlongWhenItIsKilled) {
  Program rtrun{folder_.rtrun(JobFolder::endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  ASSERT_EQ(children_of(rtrun.pid()).size(), 2u);
  rtrun.signal(SIGKILL);
  EXPECT_EQ(rtrun.wait(5s), 128 + SIGKILL);
  EXPECT_TRUE(becomes_true([&] { return folder_.leftovers().empty(); }, 10s)) << folder_.leftovers();
}

/// Kills rtrun, or in odd rounds one of its ranks, and waits for the rest to be gone.
void kill_one(Program& rtrun, std::size_t round) {
  const auto ranks = children_of(rtrun.pid());
  const bool rank = round % 2 == 1 && !ranks.empty();
  ::kill(rank ? ranks[round / 2 % ranks.size()] : rtrun.pid(), SIGKILL);
  EXPECT_EQ(rtrun.wait(10s), rank ? 4 : 128 + SIGKILL) << rtrun.err();
}

TEST_F(Launcher, LeavesNothingWheneverItOrARankIsKilledInTraining) {
  for (std::size_t round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    Program rtrun{folder_.rtrun(JobFolder::endless())};
    ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
    rtrun.wait(std::chrono::milliseconds{7 * round});
    kill_one(rtrun, round);
    EXPECT_TRUE(becomes_true([&] { return folder_.leftovers().empty(); }, 10s)) << folder_.leftovers();
  }
}

TEST_F(Launcher, LeavesNothingWheneverItOrARankIsKilledOnTheWay) {
  folder_.ignore_system_v();  // UCX tries a segment for some microseconds when it is loaded; a death then leaves it
  for (std::size_t round = 0; round < 12; ++round) {
    SCOPED_TRACE(round);
    Program rtrun{folder_.rtrun(JobFolder::endless())};
    rtrun.wait(std::chrono::milliseconds{10 * round});
    kill_one(rtrun, round);
    EXPECT_TRUE(becomes_true([&] { return folder_.leftovers().empty(); }, 10s)) << folder_.leftovers();
  }
}

}  // namespace
}  // namespace troupe::testing
