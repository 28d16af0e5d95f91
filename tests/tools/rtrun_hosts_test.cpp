// The parameters of ranks on hosts: where each rank runs, the address of the rendezvous, and the command line for a
// remote shell.

#include <gmock/gmock.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "tests/support/process.hpp"
#include "tools/rtrun/remote.hpp"
#include "tools/rtrun/sites.hpp"
#include "tools/rtrun/spawn.hpp"

namespace troupe::rtrun {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

std::vector<RankSite> sites_on(std::vector<HostSlots> hosts) { return sites_of({}, {std::move(hosts)}); }

TEST(RankSites, FollowTheOrderOfTheHosts) {
  const auto sites = sites_on({{"node1", 2}, {"node2", 1}});
  ASSERT_EQ(sites.size(), 3u);
  EXPECT_EQ(sites[1].host, "node1");
  EXPECT_EQ(sites[1].local_rank, 1u);
  EXPECT_EQ(sites[1].local_ranks, 2u);
  EXPECT_EQ(sites[2].host, "node2");
  EXPECT_EQ(sites[2].local_rank, 0u);
  EXPECT_FALSE(sites[2].here);
}

TEST(RankSites, CountThisMachineOnceByWhateverNames) {
  const auto sites = sites_on({{"localhost", 1}, {"node1", 1}, {"127.0.0.1", 1}});
  EXPECT_TRUE(sites[0].here && !sites[1].here && sites[2].here);
  EXPECT_EQ(sites[2].local_rank, 1u);
  EXPECT_EQ(sites[2].local_ranks, 2u);
  EXPECT_EQ(hosts_here({{{"localhost", 1}, {"node1", 1}}}).hosts.size(), 1u);
}

TEST(RankSites, AreOneHereWhenNothingIsSaidAndNeedALauncherOtherwise) {
  EXPECT_FALSE(wants_launcher(sites_of({}, {})));
  EXPECT_FALSE(wants_launcher(sites_on({{"localhost", 1}})));
  EXPECT_TRUE(wants_launcher(sites_of({.local = 2}, {})));
  EXPECT_TRUE(wants_launcher(sites_on({{"node1", 1}})));
}

TEST(RendezvousAddress, IsOnLoopbackWhenAllRanksAreHere) {
  const Rendezvous rendezvous = choose_rendezvous(sites_on({{"localhost", 2}}), 0);
  EXPECT_EQ(rendezvous.address, "127.0.0.1");
  EXPECT_NE(rendezvous.port, 0);
  EXPECT_TRUE(rendezvous.listener);
}

TEST(RendezvousAddress, IsTheFirstHostUnderAPortBelowThoseOfTheKernel) {
  const Rendezvous rendezvous = choose_rendezvous(sites_on({{"node1", 1}, {"localhost", 1}}), 0);
  EXPECT_EQ(rendezvous.address, "node1");
  EXPECT_TRUE(rendezvous.port >= 20000 && rendezvous.port < 32768) << rendezvous.port;
  EXPECT_FALSE(rendezvous.listener);
  EXPECT_EQ(choose_rendezvous(sites_on({{"node1", 1}}), 29500).port, 29500);
}

TEST(RendezvousAddress, IsNotLocalhostForOtherHosts) {
  try {
    choose_rendezvous(sites_on({{"localhost", 1}, {"node1", 1}}), 0);
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    EXPECT_THAT(error.what(), HasSubstr("cluster.nodes begins with localhost"));
  }
}

/// The words into which a shell splits the line.
testing::ProgramStart in_shell(const std::string& line) {
  testing::ProgramStart start;
  start.arguments = {"sh", "-c", line};
  return start;
}

TEST(RemoteCommandLine, GivesEveryByteToTheProgramAsItIs) {
  const std::vector<std::string> words{"plain", "two words",   "it's",    "$HOME `x` \"q\" \\ ; & | > *",
                                       "",      "line\nbreak", "\xc3\xb6"};
  RemoteCommand command{"/", {{"TROUPE_A", "a'b $c"}}, {"sh", "-c", "pwd; printf '%s|' \"$TROUPE_A\" \"$@\"", "sh"}};
  command.arguments.insert(command.arguments.end(), words.begin(), words.end());
  testing::Program program{in_shell(command_line(command))};
  EXPECT_EQ(program.wait(20s), 0) << program.err();
  std::string expected = "/\na'b $c|";
  for (const std::string& word : words) expected += word + "|";
  EXPECT_EQ(program.out(), expected);
}

TEST(RemoteShell, IsWordsOfAShellWithTheHostAndTheLineBehind) {
  testing::ProgramStart start;
  start.arguments = remote_shell_arguments("printf '%s|' -p 2222", "node1", "cd / && x 'y'");
  testing::Program program{start};
  EXPECT_EQ(program.wait(20s), 0) << program.err();
  EXPECT_EQ(program.out(), "-p|2222|node1|cd / && x 'y'|");
}

TEST(PassedEnvironment, IsThatOfLibrariesAndTroupeButNothingOfTheLauncher) {
  ::setenv("UCX_NET_DEVICES", "eth1", 1);
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::setenv("GOMP_SPINCOUNT", "7", 1);
  ::setenv("TROUPE_DATA", "/data", 1);
  ::setenv("TROUPE_SECRET_FILE", "/secret", 1);
  ::setenv("TROUPE_LISTEN_FD", "3", 1);
  const Environment passed = passed_environment();
  for (const char* name : {"UCX_NET_DEVICES", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "TROUPE_DATA", "TROUPE_SECRET_FILE",
                           "TROUPE_LISTEN_FD"})
    ::unsetenv(name);
  const auto has = [&](const std::string& name) {
    return std::any_of(passed.begin(), passed.end(), [&](const auto& entry) { return entry.first == name; });
  };
  EXPECT_TRUE(has("UCX_NET_DEVICES") && has("OMP_WAIT_POLICY") && has("GOMP_SPINCOUNT") && has("TROUPE_DATA"));
  EXPECT_FALSE(has("TROUPE_SECRET_FILE") || has("TROUPE_LISTEN_FD") || has("PATH"));
}

bool has_spin_count() {
  return std::ranges::any_of(library_habits(), [](const auto& habit) { return habit.first == "GOMP_SPINCOUNT"; });
}

TEST(LibraryHabits, LeaveHowOpenMpWaitsToTheUserWhoSaysIt) {
  EXPECT_TRUE(has_spin_count());
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}) {
    ::setenv(name, "1", 1);
    EXPECT_FALSE(has_spin_count()) << name;
    ::unsetenv(name);
  }
}

}  // namespace
}  // namespace troupe::rtrun
