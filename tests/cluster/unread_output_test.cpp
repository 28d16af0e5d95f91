// Whoever should read what a job prints does not, or has ended, or the disk is full.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/base/fd.hpp"
#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr int kSmallestPipe = 4096;

/// Whether nothing of the process is left but its exit code.
bool has_ended(pid_t process) {
  std::ifstream status{"/proc/" + std::to_string(process) + "/status"};
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("State:")) return line.find('Z') != line.npos;
  return true;
}

class UnreadOutput : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (IsSkipped()) return;
    const std::string path = (folder_.path() / "out").string();
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    reader_ = Fd{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    ASSERT_TRUE(reader_);
    ASSERT_GE(::fcntl(reader_.get(), F_SETPIPE_SZ, kSmallestPipe), 0);
  }
  void TearDown() override {
    std::filesystem::remove(folder_.path() / "out");
    ClusterTest::TearDown();
  }
  /// A job that prints a line for each step into the pipe.
  ProgramStart talkative(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(),
                     {"--set", "report.format=mxnet", "--set", "report.every_steps=1", "--set", "faults.exchange_s=2"});
    ProgramStart start = folder_.rtrun(std::move(arguments));
    start.run_by({"sh", "-c", "exec \"$@\" > out", "sh"});
    return start;
  }
  bool is_full() const {
    int bytes = 0;
    return ::ioctl(reader_.get(), FIONREAD, &bytes) == 0 && bytes > kSmallestPipe - 200;
  }
  /// Reads on until `program` has ended.
  std::string read_all(Program& program, int exit_code) {
    std::string all;
    std::array<char, 4096> part{};
    const auto take = [&] {
      for (ssize_t n; (n = ::read(reader_.get(), part.data(), part.size())) > 0;)
        all.append(part.data(), static_cast<std::size_t>(n));
    };
    int ended = -1;
    const Deadline deadline = Deadline::after(30s);
    while ((ended = program.wait(20ms)) < 0 && !deadline.passed()) take();
    take();
    EXPECT_EQ(ended, exit_code) << program.err();
    return all;
  }
  Fd reader_;
};

TEST_F(UnreadOutput, IsWaitedForAtTheEndByRankZeroAlone) {
  Program rtrun{talkative({"--set", "train.steps=200"})};
  const auto tells = [](const Program& p) {
    return p.err().find("waits until somebody reads stdout") != std::string::npos;
  };
  ASSERT_TRUE(rtrun.wait_until(tells, 30s)) << rtrun.err();
  EXPECT_EQ(rtrun.wait(5s), -1) << "longer than faults.exchange_s: " << rtrun.err();
  EXPECT_THAT(read_all(rtrun, 0), HasSubstr("Trained 200 steps"));
}

TEST_F(UnreadOutput, DoesNotKeepTheRanksFromANewView) {
  Program rtrun{talkative(JobFolder::endless())};
  ASSERT_TRUE(becomes_true([&] { return is_full(); }, 30s)) << rtrun.err();
  ProgramStart start = folder_.rtrun();
  start.arguments = {RTRUN_PROGRAM, "control", "run", "rebuild"};
  Program control{start};
  EXPECT_EQ(control.wait(30s), 0) << control.err() << rtrun.err();
  EXPECT_THAT(control.out(), ContainsRegex("from step [0-9]+ on in a new view"));
  start.arguments.back() = "stop";
  Program stop{start};
  EXPECT_EQ(stop.wait(30s), 0) << stop.err();
  EXPECT_THAT(read_all(rtrun, 0), HasSubstr("Stopped after"));
}

TEST_F(UnreadOutput, OnBothStreamsKeepsNoSignalFromTheRanks) {
  ProgramStart start = talkative(JobFolder::endless());
  start.run_by({"sh", "-c", "exec \"$@\" 2> out", "sh"});
  Program rtrun{start};
  ASSERT_TRUE(becomes_true([&] { return is_full(); }, 30s));
  ASSERT_EQ(children_of(rtrun.pid()).size(), 2u);
  rtrun.signal(SIGTERM);
  const pid_t second = children_of(rtrun.pid())[1];
  EXPECT_TRUE(becomes_true([&] { return has_ended(second); }, 30s));
  EXPECT_THAT(read_all(rtrun, 128 + SIGTERM), HasSubstr("Stopped after"));
}

TEST_F(UnreadOutput, OfAReaderThatHasEndedIsAnErrorAfterTheRun) {
  Program rtrun{talkative({"--set", "train.steps=200"})};
  ASSERT_TRUE(becomes_true([&] { return is_full(); }, 30s)) << rtrun.err();
  reader_.reset();
  EXPECT_EQ(rtrun.wait(30s), 3) << rtrun.err();
  EXPECT_THAT(rtrun.err(), HasSubstr("rtrun: warning: stdout cannot be written; training continues without it"));
  EXPECT_THAT(rtrun.err(), HasSubstr("error: stdout could not be written: its disk is full, or the program that read"));
}

TEST_F(UnreadOutput, LetsTheLogGoOn) {
  Program rtrun{talkative(JobFolder::endless())};
  ASSERT_TRUE(becomes_true([&] { return is_full(); }, 30s)) << rtrun.err();
  const auto size = [&] {
    std::error_code none;
    const auto bytes = std::filesystem::file_size(folder_.path() / "run/log", none);
    return none ? 0 : bytes;
  };
  const auto before = size();
  EXPECT_TRUE(becomes_true([&] { return size() > before; }, 30s)) << before;
  rtrun.signal(SIGTERM);
  EXPECT_THAT(read_all(rtrun, 128 + SIGTERM), HasSubstr("Stopped after"));
}

/// Nobody reads, and still SIGTERM ends the job before faults.stop_s has passed, with its state saved.
class UnreadOutputOfRanks : public UnreadOutput, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(, UnreadOutputOfRanks, ::testing::Values("local:1", "local:2"),
                         [](const auto& tested) { return "Of" + std::string{tested.param + sizeof "local"}; });

TEST_P(UnreadOutputOfRanks, IsGivenUpAfterSigterm) {
  auto arguments = JobFolder::endless();
  arguments.insert(arguments.end(), {"--set", std::string{"cluster.nodes="} + GetParam(), "--set",
                                     "checkpoint.every_steps=100", "--set", "faults.stop_s=4"});
  Program rtrun{talkative(arguments)};
  ASSERT_TRUE(becomes_true([&] { return is_full(); }, 30s)) << rtrun.err();
  rtrun.signal(SIGTERM);
  EXPECT_EQ(rtrun.wait(30s), 75) << rtrun.err();
  EXPECT_THAT(rtrun.err(), HasSubstr("warning: nobody reads stdout; the last lines of the run are not shown"));
}

TEST_F(UnreadOutput, KeepsNoRankThatHangsAlive) {
  ProgramStart start = talkative({"--set", "train.steps=200", "--set", "cluster.nodes=local:3", "--set",
                                  "placement.cores=0", "--set", "placement.affinity=none"});
  start.environment.emplace_back("LD_PRELOAD", HANGS_AT_EXIT);
  start.environment.emplace_back("ASAN_OPTIONS", "verify_asan_link_order=0");  // as for RAISES_EARLY
  start.environment.emplace_back("TROUPE_TEST_HANGS", "2");
  Program rtrun{start};
  EXPECT_EQ(rtrun.wait(20s), 1) << rtrun.err();
  EXPECT_THAT(rtrun.err(), HasSubstr("did not end after the others had ended well, and was killed"));
}

}  // namespace
}  // namespace troupe::testing
