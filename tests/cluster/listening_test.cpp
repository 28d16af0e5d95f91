// Where the ranks of a job can be connected to.

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

using Listening = ClusterTest;

/// Addresses, as the kernel's tables write them, at which children of `parent` listen for TCP.
std::vector<std::string> listening_children(pid_t parent) {
  constexpr const char* kListens = "0A";
  const std::vector<pid_t> children = children_of(parent);
  std::vector<std::string> addresses;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file{table};
    std::string line;
    std::getline(file, line);  // the header
    while (std::getline(file, line)) {
      std::istringstream fields{line};
      std::string slot, local, remote, state, skipped, inode;
      fields >> slot >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) fields >> skipped;
      if (!(fields >> inode) || state != kListens) continue;
      const std::vector<pid_t> holders = processes_with_open("socket:[" + inode + "]");
      const bool theirs = std::any_of(holders.begin(), holders.end(), [&](pid_t holder) {
        return std::find(children.begin(), children.end(), holder) != children.end();
      });
      if (theirs) addresses.push_back(local);
    }
  }
  return addresses;
}

/// Whether an interface that is up, other than loopback, has an IPv4 address.
bool has_another_address() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  bool found = false;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next)
    found |= entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET && (entry->ifa_flags & IFF_UP) != 0 &&
             (entry->ifa_flags & IFF_LOOPBACK) == 0;
  ::freeifaddrs(list);
  return found;
}

TEST_F(Listening, IsDoneByNoRankOfAJobOnOneHost) {
  Program rtrun{folder_.rtrun(JobFolder::endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  const std::vector<std::string> addresses = listening_children(rtrun.pid());
  EXPECT_TRUE(addresses.empty()) << addresses.size() << " sockets, the first at " << addresses.front();
}

std::vector<std::string> endless_over_tcp() {
  std::vector<std::string> arguments = JobFolder::endless();
  arguments.insert(arguments.end(), {"--set", "cluster.transport=tcp"});
  return arguments;
}

TEST_F(Listening, OfAJobOfOneHostOverTcpIsOnLoopback) {
  ProgramStart start = folder_.rtrun(endless_over_tcp());
  start.unset.emplace_back("UCX_NET_DEVICES");
  Program rtrun{start};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  const std::vector<std::string> addresses = listening_children(rtrun.pid());
  EXPECT_GE(addresses.size(), 4u) << "two lanes of two ranks";
  for (const std::string& address : addresses) EXPECT_TRUE(address.starts_with("0100007F:")) << address;
}

TEST_F(Listening, IsWhereUcxNetDevicesSays) {
  if (!has_another_address()) GTEST_SKIP() << "no interface but loopback has an address here";
  ProgramStart start = folder_.rtrun(endless_over_tcp());
  start.environment.emplace_back("UCX_NET_DEVICES", "all");
  Program rtrun{start};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  const std::vector<std::string> addresses = listening_children(rtrun.pid());
  EXPECT_TRUE(std::any_of(addresses.begin(), addresses.end(),
                          [](const std::string& address) { return !address.starts_with("0100007F:"); }));
}

}  // namespace
}  // namespace troupe::testing
