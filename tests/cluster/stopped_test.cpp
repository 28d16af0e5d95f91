// A rank of a job on this machine is stopped (SIGSTOP) before all ranks have joined.

#include <signal.h>

#include <memory>
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

}  // namespace
}  // namespace troupe::testing
