#include "tools/rtrun/sites.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "runtime/base/error.hpp"
#include "runtime/config/hosts.hpp"

namespace troupe::rtrun {
namespace {

/// Random ports are chosen below those that the kernel uses for outgoing connections (32768 and up by default).
constexpr std::uint16_t kFirstPort = 20000;
constexpr std::uint16_t kLastPort = 32767;

/// A listening socket, or none, with errno set.
Fd try_listener(const sockaddr* address, socklen_t size) {
  Fd listener{::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (!listener) return listener;
  const int yes = 1;
  const int no = 0;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (address->sa_family == AF_INET6) ::setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (::bind(listener.get(), address, size) == 0 && ::listen(listener.get(), SOMAXCONN) == 0) return listener;
  const int reason = errno;
  listener.reset();
  errno = reason;
  return listener;
}

Fd listener_at(in_addr_t where, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(where);
  return try_listener(reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

/// Listens on all addresses of IPv4 and IPv6; without IPv6 on those of IPv4.
Fd listener_everywhere(std::uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  Fd listener = try_listener(reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return listener || errno == EADDRINUSE || errno == EACCES ? std::move(listener) : listener_at(INADDR_ANY, port);
}

std::uint16_t port_of(const Fd& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  TROUPE_CHECK_ERRNO(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0,
                     Code::environment, "cannot read the port of the job's rendezvous");
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);  // the same offset in both families
}

}  // namespace

std::vector<RankSite> sites_of(const Settings::Cluster& cluster, const HostList& hosts) {
  std::vector<RankSite> sites;
  if (hosts.hosts.empty()) sites.resize(std::max<std::uint32_t>(1, cluster.local));
  for (const HostSlots& host : hosts.hosts)
    sites.insert(sites.end(), host.slots, RankSite{host.name, names_this_machine(host.name), 0, 1});
  std::map<std::string, std::uint32_t> count;  // of each machine; this machine may be in the list under several names
  const auto machine = [](const RankSite& site) { return site.here ? std::string{} : site.host; };
  for (RankSite& site : sites) site.local_rank = count[machine(site)]++;
  for (RankSite& site : sites) site.local_ranks = count[machine(site)];
  return sites;
}

bool wants_launcher(const std::vector<RankSite>& sites) { return sites.size() > 1 || !sites.front().here; }

HostList hosts_here(const HostList& hosts) {
  HostList here;
  std::copy_if(hosts.hosts.begin(), hosts.hosts.end(), std::back_inserter(here.hosts),
               [](const HostSlots& host) { return names_this_machine(host.name); });
  return here;
}

std::pair<Fd, std::uint16_t> loopback_listener(std::uint16_t port) {
  Fd listener = listener_at(INADDR_LOOPBACK, port);
  TROUPE_CHECK_ERRNO(listener, Code::environment, "cannot listen on 127.0.0.1 for this job's ranks; ",
                     port != 0 ? "is cluster.port in use, or below 1024? leave it out, and a free port is used"
                               : "is the loopback interface up (`ip link set lo up`)?");
  const std::uint16_t taken = port_of(listener);
  return {std::move(listener), taken};
}

Rendezvous choose_rendezvous(const std::vector<RankSite>& sites, std::uint16_t port) {
  Rendezvous rendezvous;
  const RankSite& first = sites.front();
  if (std::all_of(sites.begin(), sites.end(), [](const RankSite& site) { return site.here; })) {
    rendezvous.address = "127.0.0.1";
    std::tie(rendezvous.listener, rendezvous.port) = loopback_listener(port);
    return rendezvous;
  }
  rendezvous.address = first.host;
  rendezvous.port = port;
  TROUPE_CHECK(!names_loopback(first.host), Code::invalid, "cluster.nodes begins with ", first.host,
               ", to which all ranks would connect, but on the other hosts that is another machine; write this "
               "machine's name or address, as the others know it");
  if (first.here) {
    rendezvous.listener = listener_everywhere(port);
    TROUPE_CHECK_ERRNO(rendezvous.listener, Code::environment, "cannot listen at port ", port,
                       " for this job's ranks; set cluster.port to one that is free, or to 0");
    rendezvous.port = port_of(rendezvous.listener);
  } else if (port == 0) {
    std::random_device chance;
    rendezvous.port = std::uniform_int_distribution<std::uint16_t>{kFirstPort, kLastPort}(chance);
  }
  return rendezvous;
}

}  // namespace troupe::rtrun
