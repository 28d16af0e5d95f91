// A rank becomes silent, although its process lives and its sockets are open.

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>

#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

void expect_named(const std::string& said, std::size_t rank) {
  for (const std::string& word :
       {"rank " + std::to_string(rank) + " on node", std::string{"after step"}, std::string{"faults.dead_ms"}})
    EXPECT_NE(said.find(word), std::string::npos) << said << " does not tell the " << word;
}

/// An endless run with this deadline of silence.
std::vector<std::string> endless(const std::string& dead_ms) {
  auto arguments = JobFolder::endless();
  arguments.insert(arguments.end(), {"--set", "faults.dead_ms=" + dead_ms});
  return arguments;
}

class Silence : public ClusterTest, public ::testing::WithParamInterface<std::size_t> {};

TEST_P(Silence, OfARankEndsTheJobWith4AndIsNamedByTheOther) {
  Program rtrun{folder_.rtrun(endless("3000"))};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  const auto ranks = children_of(rtrun.pid());
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[GetParam()], SIGSTOP);
  EXPECT_EQ(rtrun.wait(30s), 4) << rtrun.err();
  // Whoever is first to give it up: the others, or rtrun, which sees that it is stopped.
  const std::string last = "rtrun: error: rank " + std::to_string(GetParam());
  EXPECT_TRUE(rtrun.err().find(last + " was lost by the others") != std::string::npos ||
              (rtrun.err().find(last + " (process ") != std::string::npos &&
               rtrun.err().find(") was stopped for ") != std::string::npos))
      << rtrun.err();
  const auto line = rtrun.err().find("[rank " + std::to_string(1 - GetParam()) + "] rtrun: error: ");
  ASSERT_NE(line, std::string::npos) << rtrun.err();
  expect_named(rtrun.err().substr(line, rtrun.err().find('\n', line) - line), GetParam());
}

TEST_P(Silence, OfARankIsNoticedWithoutALauncher) {
  const auto ranks = start_two_ranks(endless("3000"));
  ASSERT_TRUE(ranks[0]->wait_until(trains, 30s)) << ranks[0]->out() << ranks[0]->err() << ranks[1]->err();
  ranks[GetParam()]->signal(SIGSTOP);
  Program& other = *ranks[1 - GetParam()];
  EXPECT_EQ(other.wait(30s), 4) << other.err();
  expect_named(other.err(), GetParam());
  EXPECT_NE(other.err().find("has been silent for 300 ms"), std::string::npos) << "it was suspected first";
  ranks[GetParam()]->signal(SIGKILL);
}

INSTANTIATE_TEST_SUITE_P(EitherRank, Silence, ::testing::Values(0u, 1u));

using Pause = ClusterTest;

TEST_F(Pause, ShorterThanDeadMsEndsNothing) {
  Program rtrun{folder_.rtrun(endless("20000"))};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  const auto ranks = children_of(rtrun.pid());
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[1], SIGSTOP);
  // rtrun itself may report first that the rank is stopped.
  EXPECT_TRUE(rtrun.wait_until(
      [](const Program& p) { return p.err().find(") has been silent for 2000 ms") != std::string::npos; }, 20s))
      << rtrun.out() << rtrun.err();
  ::kill(ranks[1], SIGCONT);
  rtrun.signal(SIGINT);
  EXPECT_EQ(rtrun.wait(20s), 130) << rtrun.err();
  EXPECT_EQ(rtrun.err().find("error"), std::string::npos) << rtrun.err();
}

TEST_F(Pause, OfSecondsEndsNothingUnlessTheJobSaysSo) {
  Program rtrun{folder_.rtrun(JobFolder::endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  const auto ranks = children_of(rtrun.pid());
  ASSERT_EQ(ranks.size(), 2u);
  for (const pid_t rank : ranks) {
    ::kill(rank, SIGSTOP);
    EXPECT_EQ(rtrun.wait(3s), -1) << "it took a process that was merely late for dead: " << rtrun.err();
    ::kill(rank, SIGCONT);
  }
  rtrun.signal(SIGINT);
  EXPECT_EQ(rtrun.wait(20s), 130) << rtrun.err();
  EXPECT_EQ(rtrun.err().find("error"), std::string::npos) << rtrun.err();
}

/// Processes that keep all processors busy, each with as many as `each`.
class BusyLoops {
 public:
  explicit BusyLoops(unsigned each) {
    for (unsigned i = 0; i < each * std::max(1u, std::thread::hardware_concurrency()); ++i)
      loops_.push_back(std::make_unique<Program>(ProgramStart{
          .arguments = {"/bin/sh", "-c", "while :; do :; done"}, .environment = {}, .unset = {}, .folder = {}}));
  }

 private:
  std::vector<std::unique_ptr<Program>> loops_;
};

/// SCHED_IDLE puts all threads of a process behind everything else that wants a processor, SCHED_OTHER takes them back.
void schedule(pid_t pid, int policy) {
  const sched_param parameters{};
  for (const auto& thread : std::filesystem::directory_iterator{"/proc/" + std::to_string(pid) + "/task"})
    ::sched_setscheduler(std::stoi(thread.path().filename()), policy, &parameters);
}

TEST_F(Pause, OfARankThatHardlyFindsAProcessorEndsNothing) {
  // The loops are as strong as programs usually are, also where the tests run with a higher priority.
  ::setpriority(PRIO_PROCESS, 0, std::max(0, ::getpriority(PRIO_PROCESS, 0)));
  Program rtrun{folder_.rtrun(JobFolder::endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  const auto ranks = children_of(rtrun.pid());
  ASSERT_EQ(ranks.size(), 2u);
  {
    const BusyLoops others{4};
    schedule(ranks[1], SCHED_IDLE);
    EXPECT_EQ(rtrun.wait(20s), -1) << "it took a process that was merely late for dead: " << rtrun.err();
    EXPECT_EQ(rtrun.err().find("error"), std::string::npos) << rtrun.err();
  }
  schedule(ranks[1], SCHED_OTHER);
  rtrun.signal(SIGINT);
  EXPECT_EQ(rtrun.wait(20s), 130) << rtrun.err();
}

}  // namespace
}  // namespace troupe::testing
