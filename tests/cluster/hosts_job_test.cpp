// rtrun on several hosts: a remote shell that leads to this machine, or into network namespaces, takes ssh's place.

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <memory>

#include "tests/cluster/job_folder.hpp"
#include "tests/support/network.hpp"

namespace troupe::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in{file};
  return {std::istreambuf_iterator<char>{in}, {}};
}

class HostsJob : public ClusterTest {
 protected:
  /// Loopback addresses in a form that only the resolver knows: other machines, as far as the launcher can tell.
  static constexpr const char* kTwoHosts = "cluster.nodes=[\"127.1\", \"127.2\"]";

  /// Makes data/shell, which is run as `shell HOST COMMAND`; `commands` find the two in $1 and $2.
  void write_shell(const std::string& commands) const {
    const auto file = folder_.path() / "data/shell";
    std::ofstream{file} << "#!/bin/sh\n" << commands << "\n";
    ::chmod(file.c_str(), 0700);
  }
  ProgramStart job(const std::vector<std::string>& settings, std::vector<std::string> arguments = {}) const {
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    arguments.insert(arguments.end(), {"--set", "cluster.remote_shell=data/shell"});
    return folder_.rtrun(arguments);
  }
};

TEST_F(HostsJob, TrainsByARemoteShellOnEachHost) {
  write_shell("echo \"$1\" >> data/led-to; exec sh -c \"$2\"");
  Program rtrun{job({kTwoHosts})};
  EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  EXPECT_THAT(rtrun.out(), AllOf(HasSubstr("Num process (COMM_WORLD): 2\n"), HasSubstr("\n2 ")));
  EXPECT_EQ(rtrun.err(), "");
  EXPECT_THAT(text_of(folder_.path() / "data/led-to"), AllOf(HasSubstr("127.1\n"), HasSubstr("127.2\n")));
}

TEST_F(HostsJob, TellsRanksTheirPlaceOnTheCommandLineAndTheSecretNot) {
  write_shell("echo \"$2\" >> data/\"$1\"; exec sh -c \"$2\"");
  Program rtrun{job(
      {"cluster.nodes=[\"127.1\", \"127.2:2\"]", "placement.cores=0", "cluster.port=" + std::to_string(free_port())},
      JobFolder::short_run())};
  EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  const std::string second = text_of(folder_.path() / "data/127.2");
  EXPECT_THAT(second,
              AllOf(HasSubstr("'RANK=1' 'WORLD_SIZE=3' 'LOCAL_RANK=0' 'LOCAL_WORLD_SIZE=2' 'MASTER_ADDR=127.1'"),
                    HasSubstr("'RANK=2' 'WORLD_SIZE=3' 'LOCAL_RANK=1'")));
  EXPECT_THAT(second, Not(ContainsRegex("[0-9a-f]{64}"))) << "that looks like a secret";
}

TEST_F(HostsJob, ReadsItsHostsFromAFileBesideTheConfiguration) {
  write_shell("exec sh -c \"$2\"");
  std::ofstream{folder_.path() / "data/hosts"} << "# two\n127.1 slots=1\n127.2 slots=1 max-slots=4\n";
  Program rtrun{job({"cluster.nodes=data/hosts"}, JobFolder::short_run())};
  EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  EXPECT_THAT(rtrun.out(), HasSubstr("Num process (COMM_WORLD): 2\n"));
}

TEST_F(HostsJob, IsShownByCheckAndPlan) {
  std::ofstream{folder_.path() / "data/hosts"} << "node1 slots=2\nnode2\n";
  ProgramStart start = folder_.rtrun({"--set", "cluster.nodes=data/hosts"});
  start.arguments.insert(start.arguments.begin() + 1, "check");
  Program check{start};
  EXPECT_EQ(check.wait(20s), 0) << check.err();
  EXPECT_THAT(check.out(), AllOf(ContainsRegex("cluster.nodes += \"data/hosts\" +# --set cluster.nodes"),
                                 HasSubstr("Hosts: 2, 3 ranks: node1:2, node2:1\n")));
  start.arguments[1] = "plan";
  Program plan{start};
  EXPECT_EQ(plan.wait(20s), 0) << plan.err();
  EXPECT_THAT(plan.out(), AllOf(ContainsRegex("0 +node1 +0-1 "), ContainsRegex("1 +node2 +2 "),
                                HasSubstr("Other machines were not examined: 2 are assumed to be like this one.")));
}

TEST_F(HostsJob, KeepsWhatARemoteShellWritesInTheRanksFile) {
  write_shell("echo welcome to \"$1\"; exec sh -c \"$2\"");
  Program rtrun{job({"cluster.nodes=[\"127.1\", \"127.2\"]"}, JobFolder::short_run())};
  EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  EXPECT_EQ(text_of(folder_.path() / "run/rank-1.log"), "welcome to 127.2\n");
  EXPECT_THAT(rtrun.err(), Not(HasSubstr("welcome to 127.2")));
}

TEST_F(HostsJob, EndsWithTheHostsNameWhenARemoteShellDies) {
  write_shell("sh -c \"$2\"; exit $?");
  Program rtrun{job({kTwoHosts}, JobFolder::endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  const auto shells = children_of(rtrun.pid());
  ASSERT_EQ(shells.size(), 2u);
  ::kill(shells[1], SIGKILL);
  EXPECT_EQ(rtrun.wait(20s), 4) << rtrun.err();
  EXPECT_THAT(rtrun.err(), ContainsRegex("rtrun: error: the remote shell of rank 1 on 127.2 \\(process [0-9]+\\) was "
                                         "killed by SIGKILL"));
}

TEST_F(HostsJob, SaysWhatTheShellSaidWhenAHostCannotBeReached) {
  write_shell(
      "test \"$1\" = 127.1 && exec sh -c \"$2\"\necho \"ssh: connect to host $1 port 22: No route to host\" >&2; exit "
      "255");
  Program rtrun{job({kTwoHosts})};
  EXPECT_EQ(rtrun.wait(30s), 3) << rtrun.err();
  EXPECT_THAT(rtrun.err(), AllOf(HasSubstr("rtrun: error: the remote shell of rank 1 on 127.2 failed"),
                                 HasSubstr(": ssh: connect to host 127.2 port 22: No route to host")));
}

TEST_F(HostsJob, EndsItsJsonOnce) {
  write_shell("exec sh -c \"$2\"");
  Program rtrun{job({kTwoHosts, "data.path=nowhere"}, {"--json"})};
  EXPECT_EQ(rtrun.wait(30s), 2) << rtrun.err();
  EXPECT_EQ(rtrun.out().find("\"failed\""), rtrun.out().rfind("\"failed\"")) << rtrun.out();
  EXPECT_THAT(rtrun.out(), HasSubstr("\"failed\""));
}

TEST_F(HostsJob, SaysThatThereIsNoSuchShell) {
  Program rtrun{folder_.rtrun({"--set", kTwoHosts, "--set", "cluster.remote_shell=no-such-shell"})};
  EXPECT_EQ(rtrun.wait(30s), 127) << rtrun.err();
  EXPECT_THAT(rtrun.err(), AllOf(HasSubstr("cluster.remote_shell must be a program here"), HasSubstr("no-such-shell")));
}

TEST_F(HostsJob, EndsEverywhereAfterCtrlC) {
  write_shell("exec sh -c \"$2\"");
  Program rtrun{job({kTwoHosts}, JobFolder::endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  rtrun.signal(SIGINT);
  EXPECT_EQ(rtrun.wait(20s), 130) << rtrun.err();
  EXPECT_THAT(rtrun.out(), HasSubstr("Stopped after"));
  EXPECT_THAT(rtrun.err(), Not(HasSubstr("error")));
}

TEST_F(HostsJob, TellsWhatItsRanksAreDoing) {
  write_shell("exec sh -c \"$2\"");
  Program rtrun{job({kTwoHosts}, JobFolder::endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  rtrun.signal(SIGUSR1);
  EXPECT_TRUE(rtrun.wait_until(
      [](const Program& p) {
        return p.err().find("[rank 0] rtrun: rank 0 of 2") != std::string::npos &&
               p.err().find("[rank 1] rtrun: rank 1 of 2") != std::string::npos;
      },
      20s))
      << rtrun.err();
  rtrun.signal(SIGTERM);
  EXPECT_EQ(rtrun.wait(20s), 143) << rtrun.err();
}

TEST_F(HostsJob, IsGoneEverywhereWhenItsLauncherIsKilled) {
  write_shell("sh -c \"$2\"; exit $?");  // the ranks are nobody's children whom the kernel would end
  Program rtrun{job({kTwoHosts}, JobFolder::endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  rtrun.signal(SIGKILL);
  rtrun.wait(20s);
  EXPECT_TRUE(becomes_true([&] { return folder_.leftovers().empty(); }, 10s)) << folder_.leftovers();
}

TEST_F(HostsJob, NeedsARemoteShellThatPassesStdinOn) {
  write_shell("exec sh -c \"$2\" < /dev/null");
  Program rtrun{job({kTwoHosts})};
  EXPECT_EQ(rtrun.wait(30s), 3) << rtrun.err();
  EXPECT_THAT(rtrun.err(), AllOf(HasSubstr("stdin ended before the secret did"), HasSubstr("`ssh -n` does not")));
}

/// A network namespace for each host, named by its address.
class HostsInNamespaces : public HostsJob {
 protected:
  void SetUp() override {
    HostsJob::SetUp();
    if (IsSkipped()) return;
    if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
    cluster_ = std::make_unique<NamespaceCluster>(2);
    std::string cases = "case \"$1\" in\n";
    for (std::size_t node = 0; node < 2; ++node) {
      cases += cluster_->address(node) + ") exec";
      for (const std::string& word : cluster_->enter(node)) cases += " " + word;
      cases += " sh -c \"$2\" ;;\n";
    }
    write_shell(cases + "esac; exit 255");
    nodes_ = "cluster.nodes=[\"" + cluster_->address(0) + "\", \"" + cluster_->address(1) + "\"]";
  }
  std::unique_ptr<NamespaceCluster> cluster_;
  std::string nodes_;
};

TEST_F(HostsInNamespaces, TrainWhenNoneOfThemIsTheLaunchers) {
  Program rtrun{job({nodes_})};
  EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  EXPECT_THAT(rtrun.out(), AllOf(HasSubstr("Using direct communicator\n"), HasSubstr("\n2 ")));
}

TEST_F(HostsInNamespaces, TrainWhenTheFirstIsTheLaunchers) {
  ProgramStart start = job({nodes_});
  start.run_by(cluster_->enter(0));
  Program rtrun{start};
  EXPECT_EQ(rtrun.wait(60s), 0) << rtrun.err();
  EXPECT_THAT(rtrun.out(), AllOf(HasSubstr("Using direct communicator\n"), HasSubstr("\n2 ")));
}

TEST_F(HostsInNamespaces, EndWhenOneIsCutOff) {
  auto arguments = JobFolder::endless();
  arguments.insert(arguments.end(), {"--set", "faults.dead_ms=3000"});
  Program rtrun{job({nodes_}, arguments)};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  cluster_->cut(1);
  EXPECT_EQ(rtrun.wait(30s), 4) << rtrun.err();
  EXPECT_THAT(rtrun.err(), HasSubstr("rank 1"));
}

}  // namespace
}  // namespace troupe::testing
