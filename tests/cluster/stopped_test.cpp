// A rank of a job on this machine is stopped (SIGSTOP), or its terminal hangs up, before all ranks have joined.

#include <signal.h>

#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

/// Two ranks, the second stopped as soon as it is there.
class StoppedEarly : public ClusterTest {
 protected:
  void start(std::vector<std::string> more) {
    auto arguments = JobFolder::endless();
    arguments.insert(arguments.end(), {"--set", "faults.start_s=60"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    rtrun_ = std::make_unique<Program>(folder_.rtrun(arguments));
    ASSERT_TRUE(becomes_true([&] { return children_of(rtrun_->pid()).size() == 2; }, 30s)) << rtrun_->err();
    victim_ = children_of(rtrun_->pid())[1];
    ASSERT_EQ(::kill(victim_, SIGSTOP), 0);
  }
  std::unique_ptr<Program> rtrun_;
  pid_t victim_ = 0;
};

TEST_F(StoppedEarly, IsLostAfterDeadMsAndNamed) {
  start({"--set", "faults.dead_ms=3000"});
  EXPECT_EQ(rtrun_->wait(30s), 4) << rtrun_->err();
  const std::string name = "rank 1 (process " + std::to_string(victim_) + ")";
  EXPECT_NE(rtrun_->err().find(name + " is stopped"), std::string::npos) << rtrun_->err();
  EXPECT_NE(rtrun_->err().find("rtrun: error: " + name + " was stopped for"), std::string::npos) << rtrun_->err();
}

TEST_F(StoppedEarly, GoesOnWhenItIsLetGoInTime) {
  start({"--set", "faults.dead_ms=20000"});
  const auto tells = [](const Program& program) { return program.err().find(" is stopped") != std::string::npos; };
  ASSERT_TRUE(rtrun_->wait_until(tells, 30s)) << rtrun_->err();
  ASSERT_EQ(::kill(victim_, SIGCONT), 0);
  const auto trains = [](const Program& program) { return program.out().find("\n1 ") != std::string::npos; };
  EXPECT_TRUE(rtrun_->wait_until(trains, 60s)) << rtrun_->out() << rtrun_->err();
  rtrun_->signal(SIGTERM);
  EXPECT_EQ(rtrun_->wait(60s), 128 + SIGTERM) << rtrun_->err();  // it saves nothing
}

/// Whether a process blocks SIGHUP; nothing if it cannot be read any more.
std::optional<bool> blocks_hang_ups(pid_t process) {
  std::ifstream status{"/proc/" + std::to_string(process) + "/status"};
  std::string line;
  while (std::getline(status, line))
    if (line.starts_with("SigBlk:"))
      return ((std::stoull(line.substr(line.find_first_not_of(" \t", 7)), nullptr, 16) >> (SIGHUP - 1)) & 1) != 0;
  return std::nullopt;
}

using HangUps = ClusterTest;

TEST_F(HangUps, AreHeldForARankFromItsFirstMomentOn) {
  ::signal(SIGHUP, SIG_DFL);  // rtrun lets it be ignored where it was, as under nohup
  Program rtrun{folder_.rtrun(JobFolder::endless())};
  ASSERT_TRUE(becomes_true([&] { return children_of(rtrun.pid()).size() == 2; }, 30s)) << rtrun.err();
  const pid_t rank = children_of(rtrun.pid())[1];
  std::size_t open = 0;
  const auto trains_meanwhile = [&](const Program& program) {
    for (int i = 0; i < 100; ++i) open += blocks_hang_ups(rank) == false ? 1 : 0;
    return trains(program);
  };
  ASSERT_TRUE(rtrun.wait_until(trains_meanwhile, 60s)) << rtrun.err();
  EXPECT_EQ(open, 0u) << "times that SIGHUP was seen not to be blocked";
  rtrun.signal(SIGHUP);
  EXPECT_EQ(rtrun.wait(60s), 128 + SIGHUP) << rtrun.err();
}

/// rtrun gets a signal when its libraries are initialized and its main has not begun.
class EarlySignals : public ClusterTest {
 protected:
  ProgramStart with(int signal, const std::vector<std::string>& arguments) const {
    ProgramStart start = folder_.rtrun(arguments);
    start.environment.emplace_back("LD_PRELOAD", RAISES_EARLY);
    // A program that is built with the address sanitizer otherwise refuses to start with another library before it.
    start.environment.emplace_back("ASAN_OPTIONS", "verify_asan_link_order=0");
    start.environment.emplace_back("TROUPE_TEST_RAISE", std::to_string(signal));
    return start;
  }
};

TEST_F(EarlySignals, AReportIsGivenLater) {
  Program rtrun{with(SIGUSR1, JobFolder::short_run())};
  EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  EXPECT_NE(rtrun.err().find("no step is running"), std::string::npos) << rtrun.err();
}

TEST_F(EarlySignals, AReportIsNotAskedOfAProgramOnAnotherHost) {
  const std::filesystem::path shell = folder_.path() / "data/shell";
  std::ofstream{shell} << "#!/usr/bin/env python3\n"
                          "import os, signal, sys\n"
                          "signal.pthread_sigmask(signal.SIG_SETMASK, [])  # as on another host\n"
                          "early = 'exec env LD_PRELOAD=" RAISES_EARLY
                          " ASAN_OPTIONS=verify_asan_link_order=0 TROUPE_TEST_RAISE=10 '\n"
                          "os.execvp('sh', ['sh', '-c', sys.argv[2].replace('exec env ', early, 1)])\n";
  std::filesystem::permissions(shell, std::filesystem::perms::owner_all);
  Program rtrun{folder_.rtrun({"--set", "cluster.nodes=[\"127.1\"]", "--set", "cluster.remote_shell=data/shell", "--",
                               "grep", "^SigBlk", "/proc/self/status"})};
  EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  EXPECT_EQ(rtrun.out(), "SigBlk:\t0000000000000000\n") << rtrun.err();
}

TEST_F(EarlySignals, AHangUpEndsIt) {
  ::signal(SIGHUP, SIG_DFL);  // rtrun lets it be ignored where it was, as under nohup
  Program rtrun{with(SIGHUP, JobFolder::endless())};
  EXPECT_EQ(rtrun.wait(60s), 128 + SIGHUP) << rtrun.err();
}

}  // namespace
}  // namespace troupe::testing
