// A process of a job on this machine is killed without warning.

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <random>
#include <sstream>

#include "runtime/base/random.hpp"
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

/// Kills without warning, at moments and of victims that a seed draws; it is printed, and TROUPE_TEST_SEED sets it.
class RandomKills : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    std::cout << "seed " << seed_ << " (TROUPE_TEST_SEED sets it)\n";
  }
  std::uint64_t below(std::uint64_t bound) { return random_below(seed_, draws_++, bound); }

  /// Kills rtrun or one of its ranks and waits until all processes have ended; the job may have ended before.
  void kill_one(Program& rtrun) {
    const auto ranks = children_of(rtrun.pid());
    const std::uint64_t victim = below(ranks.size() + 1);
    SCOPED_TRACE(::testing::Message() << "seed " << seed_ << ", round " << round_++ << ", victim " << victim << " of "
                                      << ranks.size());
    ::kill(victim == 0 ? rtrun.pid() : ranks[victim - 1], SIGKILL);
    const int code = rtrun.wait(10s);
    if (code != 0) {
      EXPECT_EQ(code, victim == 0 ? 128 + SIGKILL : 4) << rtrun.err();
      ++killed_;
    }
    // Of a launcher that is killed while UCX makes a file nobody is left to remove it; the user's next job does.
    if (victim == 0 && !becomes_true([&] { return folder_.leftovers().empty(); }, 5s)) {
      EXPECT_EQ(Program{folder_.rtrun(JobFolder::short_run())}.wait(60s), 0);
    }
    EXPECT_TRUE(becomes_true([&] { return folder_.leftovers().empty(); }, 10s)) << folder_.leftovers();
  }

  static constexpr int kRounds = 50;  // of each test
  int killed_ = 0;                    // before the end

 private:
  static std::uint64_t chosen_seed() {
    const char* chosen = std::getenv("TROUPE_TEST_SEED");
    return chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : std::random_device{}();
  }
  const std::uint64_t seed_ = chosen_seed();
  std::uint64_t draws_ = 0;
  int round_ = 0;
};

TEST_F(RandomKills, InTrainingLeaveNothing) {
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    Program rtrun{folder_.rtrun(JobFolder::endless())};
    ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
    rtrun.wait(std::chrono::milliseconds{below(60)});
    kill_one(rtrun);
  }
  EXPECT_EQ(killed_, kRounds);
}

TEST_F(RandomKills, BetweenStartAndEndLeaveNothing) {
  const auto begun = Clock::now();
  ASSERT_EQ(Program{folder_.rtrun(JobFolder::short_run())}.wait(60s), 0);
  const auto whole_run = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun);
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    Program rtrun{folder_.rtrun(JobFolder::short_run())};
    rtrun.wait(std::chrono::milliseconds{below(static_cast<std::uint64_t>(whole_run.count()) + 1)});
    kill_one(rtrun);
  }
  EXPECT_GT(killed_, kRounds / 2) << "too late to tell anything";
}

class Joined : public ClusterTest, public ::testing::WithParamInterface<std::uint32_t> {};

TEST_P(Joined, RanksWithoutALauncherEndWith4AndNameTheOneThatWasKilled) {
  const auto ranks = start_two_ranks();
  ASSERT_TRUE(ranks[0]->wait_until(trains, 30s)) << ranks[0]->out() << ranks[0]->err() << ranks[1]->err();
  ranks[GetParam()]->signal(SIGKILL);
  Program& survivor = *ranks[1 - GetParam()];
  EXPECT_EQ(survivor.wait(10s), 4) << survivor.err();
  for (const std::string& word : {"rank " + std::to_string(GetParam()), std::string{"node"}, std::string{"step"}})
    EXPECT_NE(survivor.err().find(word), std::string::npos) << survivor.err() << " does not tell the " << word;
}

INSTANTIATE_TEST_SUITE_P(EitherRank, Joined, ::testing::Values(0u, 1u));

TEST_F(Launcher, WouldBeSeenToLeaveSharedMemoryButNotThatOfAnotherProgram) {
  const std::string name = "troupe-test-" + std::to_string(::getpid());
  const std::string file = "/dev/shm/" + name;
  const auto is_seen = [&] { return folder_.leftovers().find("shared memory " + name) != std::string::npos; };
  ASSERT_TRUE(std::ofstream{file} << "x");
  EXPECT_TRUE(is_seen());
  {
    const Program other{{.arguments = {"tail", "-f", file}, .environment = {}, .unset = {}, .folder = {}}};
    EXPECT_TRUE(becomes_true([&] { return !is_seen(); }, 30s)) << folder_.leftovers();
  }
  EXPECT_TRUE(is_seen());
  std::filesystem::remove(file);
}

TEST_F(Launcher, WouldBeSeenToLeaveASocketThatListens) {
  const std::uint16_t port = free_port();
  Program rank{folder_.rank(0, 2, "127.0.0.1", port)};  // waits for the other
  std::ostringstream socket;
  socket << "socket tcp 0100007F:" << std::uppercase << std::hex << std::setw(4) << std::setfill('0') << port;
  EXPECT_TRUE(becomes_true([&] { return folder_.leftovers().find(socket.str()) != std::string::npos; }, 10s))
      << folder_.leftovers() << "has no " << socket.str();
}

}  // namespace
}  // namespace troupe::testing
