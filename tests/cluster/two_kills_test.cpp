// Two ranks of a job on this machine are killed at once.

#include <signal.h>

#include <string>

#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

using TwoKills = ClusterTest;

TEST_F(TwoKills, AtOnceAreBothNamedInTheLastLine) {
  auto arguments = JobFolder::endless();
  arguments.insert(arguments.end(), {"--set", "cluster.nodes=\"local:4\"", "--set", "placement.cores=0", "--set",
                                     "faults.dead_ms=20000"});
  for (int round = 0; round < 5; ++round) {
    Program rtrun{folder_.rtrun(arguments)};
    ASSERT_TRUE(rtrun.wait_until(trains, 60s)) << rtrun.out() << rtrun.err();
    const auto ranks = children_of(rtrun.pid());
    ASSERT_EQ(ranks.size(), 4u);
    for (const pid_t victim : {ranks[1], ranks[3]}) ::kill(victim, SIGKILL);
    EXPECT_EQ(rtrun.wait(20s), 4) << rtrun.err();
    const std::string last = rtrun.err().substr(rtrun.err().rfind("\nrtrun: error: ") + 1);
    for (const pid_t victim : {ranks[1], ranks[3]})
      EXPECT_NE(last.find("(process " + std::to_string(victim) + ")"), std::string::npos) << rtrun.err();
  }
}

}  // namespace
}  // namespace troupe::testing
