#include "devices/discovery/detail/nics.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include "devices/discovery/detail/files.hpp"
#include "runtime/base/error.hpp"

namespace troupe::detail {
namespace {

/// The data of getifaddrs about one interface.
struct Seen {
  unsigned flags = 0;
  std::string hardware;  // such as 02:42:ac:11:00:02, in the form of /sys
  std::string address;
  int worth = 0;  // of the address: 3 IPv4, 2 IPv6, 1 link-local IPv6
};

std::string hardware_text(const sockaddr_ll& link) {
  std::string out;
  char part[4];
  for (int i = 0; i < std::min<int>(link.sll_halen, sizeof link.sll_addr); ++i) {
    std::snprintf(part, sizeof part, "%s%02x", i == 0 ? "" : ":", link.sll_addr[i]);
    out += part;
  }
  return out;
}

int worth_of(const sockaddr& address) {
  if (address.sa_family == AF_INET) return 3;
  if (address.sa_family != AF_INET6) return 0;
  sockaddr_in6 six;
  std::memcpy(&six, &address, sizeof six);
  return IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr) ? 1 : 2;
}

void take(Seen& seen, const ifaddrs& entry) {
  seen.flags |= entry.ifa_flags;
  if (entry.ifa_addr == nullptr) return;
  if (entry.ifa_addr->sa_family == AF_PACKET) {
    sockaddr_ll link;
    std::memcpy(&link, entry.ifa_addr, sizeof link);
    seen.hardware = hardware_text(link);
    return;
  }
  const int worth = worth_of(*entry.ifa_addr);
  if (worth <= seen.worth) return;
  std::array<char, NI_MAXHOST> text{};
  const socklen_t size = entry.ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (::getnameinfo(entry.ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return;
  seen.address = text.data();
  seen.worth = worth;
}

/// /sys shows the namespace that it was mounted in; after setns(2) alone that is another one, with its own eth0.
bool shows_same(const std::string& folder, const std::string& name, const Seen& seen) {
  const auto index = number_in_file<std::int64_t>(folder + "/ifindex");
  const auto hardware = read_small_file(folder + "/address");
  return index && *index == static_cast<std::int64_t>(::if_nametoindex(name.c_str())) && hardware &&
         hardware->substr(0, seen.hardware.size()) == seen.hardware;  // longer for InfiniBand
}

std::string first_name_in(const std::string& folder) {
  std::error_code none;
  std::string first;
  for (auto at = std::filesystem::directory_iterator{folder, none};
       !none && at != std::filesystem::directory_iterator{}; at.increment(none)) {
    const std::string name = at->path().filename();
    if (first.empty() || name < first) first = name;
  }
  return first;
}

void add_from_sys(Nic& nic, const std::string& folder, const std::vector<NumaNode>& numa) {
  if (const auto megabits = number_in_file<std::int64_t>(folder + "/speed");
      megabits && *megabits > 0) {  // -1: unknown
    nic.bits_per_second = static_cast<std::uint64_t>(*megabits) * 1'000'000;
  }
  if (const auto node = number_in_file<std::int64_t>(folder + "/device/numa_node"); node && *node >= 0) {
    const auto at = std::find_if(numa.begin(), numa.end(), [&](const NumaNode& n) { return n.os_index == *node; });
    if (at != numa.end()) nic.numa = static_cast<std::int32_t>(at - numa.begin());
  }
  nic.infiniband = first_name_in(folder + "/device/infiniband");
}

}  // namespace

std::vector<Nic> find_nics(const std::vector<NumaNode>& numa) {
  ifaddrs* list = nullptr;
  TROUPE_CHECK_ERRNO(::getifaddrs(&list) == 0, Code::environment, "cannot list the network interfaces of this node");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner{list, ::freeifaddrs};
  std::map<std::string, Seen> by_name;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) take(by_name[entry->ifa_name], *entry);
  std::vector<Nic> nics;
  for (const auto& [name, seen] : by_name) {
    Nic nic;
    nic.name = name;
    nic.address = seen.address;
    nic.up = (seen.flags & IFF_UP) != 0 && (seen.flags & IFF_RUNNING) != 0;
    nic.loopback = (seen.flags & IFF_LOOPBACK) != 0;
    const std::string folder = "/sys/class/net/" + name;
    if (shows_same(folder, name, seen)) add_from_sys(nic, folder, numa);
    nics.push_back(std::move(nic));
  }
  return nics;
}

}  // namespace troupe::detail
