// Ranks that a real mpirun started find each other through its PMIx server.

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/network.hpp"
#include "tests/support/process.hpp"
#include "transports/bootstrap/detail/pmix.hpp"

namespace troupe::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

bool in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders{path != nullptr ? path : ""};
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  return false;
}

/// The variables that torchrun and similar launchers set, which would take precedence.
const std::vector<std::string> kOtherLaunchers{"RANK",        "WORLD_SIZE",  "LOCAL_RANK",
                                               "MASTER_ADDR", "MASTER_PORT", "TROUPE_SECRET_FILE"};

class UnderMpirun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!bootstrap::pmix_available()) GTEST_SKIP() << "this build has no PMIx (libpmix-dev)";
    if (!in_path("mpirun")) GTEST_SKIP() << "there is no mpirun (openmpi-bin)";
    Program probe{mpirun(1, {"true"})};
    if (probe.wait(20s) != 0) GTEST_SKIP() << "mpirun does not work here: " << probe.err();
  }

  static ProgramStart mpirun(int ranks, const std::vector<std::string>& program) {
    ProgramStart start;
    start.arguments = {"mpirun", "-np", std::to_string(ranks), "--allow-run-as-root", "--oversubscribe"};
    start.arguments.insert(start.arguments.end(), program.begin(), program.end());
    start.unset = kOtherLaunchers;
    return start;
  }
};

TEST_F(UnderMpirun, RanksJoinOneBootstrapWithASecretOfTheirOwn) {
  Program job{mpirun(3, {PMIX_PROBE_PROGRAM})};
  EXPECT_EQ(job.wait(30s), 0) << job.err();
  for (const std::string rank : {"0", "1", "2"}) {
    EXPECT_THAT(job.out(), HasSubstr("joined as rank " + rank + " of 3, local " + rank +
                                     ", at 127.0.0.1, secret of 64, found in PMIx"));
  }
  EXPECT_THAT(job.out(), HasSubstr("gathered <rank 0> <rank 1> <rank 2>"));
  EXPECT_EQ(job.err(), "");  // mpirun finds nothing improper
}

/// What mpirun starts its daemons with, in the place of ssh: enters a node and gives it a host name of its own.
class NodeAgent {
 public:
  explicit NodeAgent(const NamespaceCluster& cluster) : file_(::testing::TempDir() + "troupe-agent-XXXXXX") {
    close(mkstemp(file_.data()));
    std::ofstream script{file_};
    script << "#!/bin/sh\nhost=$1; shift\ncase $host in\n";
    for (const std::size_t node : {0, 1})
      script << cluster.address(node) << ") enter='" << entry(cluster, node) << "';;\n";
    script << "esac\nexec $enter sh -c \"hostname $host; $*\"\n";
    script.close();
    chmod(file_.c_str(), 0700);
  }
  ~NodeAgent() { unlink(file_.c_str()); }
  NodeAgent(const NodeAgent&) = delete;
  NodeAgent& operator=(const NodeAgent&) = delete;
  const std::string& file() const { return file_; }

 private:
  static std::string entry(const NamespaceCluster& cluster, std::size_t node) {
    std::string line;
    for (const std::string& word : cluster.enter(node)) line += word + " ";
    return line + "unshare -u";
  }
  std::string file_;
};

TEST_F(UnderMpirun, RanksOnTwoHostsConnectOverTheNetworkBetweenThem) {
  if (const std::string why = why_no_namespaces(); !why.empty()) GTEST_SKIP() << why;
  const NamespaceCluster cluster{2};
  const NodeAgent agent{cluster};
  ProgramStart start = mpirun(4, {"--mca", "plm_rsh_agent", agent.file(), "--mca", "oob_tcp_if_include", "eth0", "-H",
                                  cluster.address(0) + ":2," + cluster.address(1) + ":2", PMIX_PROBE_PROGRAM});
  const std::vector<std::string> first{agent.file(), cluster.address(0)};
  start.arguments.insert(start.arguments.begin(), first.begin(), first.end());
  Program job{start};
  EXPECT_EQ(job.wait(60s), 0) << job.err();
  const std::string at = ", at " + cluster.address(0) + ", secret of 64";
  EXPECT_THAT(job.out(), AllOf(HasSubstr("rank 1 of 4, local 1" + at), HasSubstr("rank 2 of 4, local 0" + at)));
}

TEST_F(UnderMpirun, VariablesOfAnotherLauncherWin) {
  ProgramStart start = mpirun(1, {PMIX_PROBE_PROGRAM});
  start.environment = {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "127.0.0.1"}};
  start.unset = {"TROUPE_SECRET_FILE", "MASTER_PORT"};
  Program job{start};
  EXPECT_EQ(job.wait(30s), 3) << job.out();
  EXPECT_THAT(job.err(), HasSubstr("RANK is set but MASTER_PORT is not"));
}

TEST_F(UnderMpirun, SaysThatARankNeverAskedForItsPlace) {
  Program job{mpirun(2, {PMIX_PROBE_PROGRAM, "1"})};
  EXPECT_NE(job.wait(20s), 0);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("timeout: PMIx: "), HasSubstr("of the job"))) << job.out();
}

TEST(PmixEnvironment, OfALauncherThatIsGoneIsAnErrorThatSaysWhatToDo) {
  ProgramStart start;
  start.arguments = {PMIX_PROBE_PROGRAM};
  start.environment = {
      {"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "1234"}, {"PMIX_SERVER_URI2", "1233.0;tcp4://127.0.0.1:1"}};
  start.unset = kOtherLaunchers;
  Program rank{start};
  const int code = rank.wait(30s);
  if (bootstrap::pmix_available()) {
    EXPECT_EQ(code, 3) << rank.err();
    EXPECT_THAT(rank.err(), AllOf(HasSubstr("environment: PMIx: "), HasSubstr("without PMIX_*")));
  } else {
    EXPECT_THAT(rank.err(), AllOf(HasSubstr("unsupported: "), HasSubstr("libpmix-dev")));
  }
}

}  // namespace
}  // namespace troupe::testing
