// Jobs make no System V shared memory segment, not even for a moment: one that is made may outlive a kill.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cstddef>
#include <thread>

#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

/// From now on the kernel kills every process that this thread starts, and the thread's own, for making a segment.
bool forbid_segments() {
  std::array<sock_filter, 4> steps{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_shmget, 0, 1),
                                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog program{steps.size(), steps.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

class NoSystemV : public ClusterTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(NoSystemV, SegmentIsMadeByAJob) {
  std::thread{[this] {
    if (!forbid_segments()) GTEST_SKIP() << "this system has no seccomp";
    Program rtrun{folder_.rtrun({"--set", "train.steps=5", "--set", std::string{"cluster.transport="} + GetParam()})};
    EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  }}.join();
}
INSTANTIATE_TEST_SUITE_P(AnyTransport, NoSystemV, ::testing::Values("\"auto\"", "\"shm\"", "\"tcp\""),
                         [](const auto& transport) { return std::string{"Number"} + std::to_string(transport.index); });

}  // namespace
}  // namespace troupe::testing
