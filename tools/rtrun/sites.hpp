#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/fd.hpp"
#include "runtime/config/config.hpp"

namespace troupe::rtrun {

/// Where to start one rank.
struct RankSite {
  std::string host;  // as in the configuration; empty: this machine, by "local:N"
  bool here = true;  // on this machine, as a child process; otherwise by the remote shell
  std::uint32_t local_rank = 0;
  std::uint32_t local_ranks = 1;  // number of ranks on its machine
};

/// The site of each rank according to the configuration: one on this machine if it says nothing.
std::vector<RankSite> sites_of(const Settings::Cluster& cluster, const HostList& hosts);
/// Whether rtrun must start ranks; otherwise it is the only rank.
bool wants_launcher(const std::vector<RankSite>& sites);
/// The hosts of the list that are this machine.
HostList hosts_here(const HostList& hosts);

/// A socket that listens on a loopback port (0: a free one), and the port. Throws Error{environment}.
std::pair<Fd, std::uint16_t> loopback_listener(std::uint16_t port = 0);

/// The address at which the ranks of a job connect.
struct Rendezvous {
  std::string address;  // MASTER_ADDR
  std::uint16_t port = 0;
  Fd listener;  // for rank 0 if it is on this machine: no other process can take the port
};

/// Chooses it: loopback if all ranks are on this machine; otherwise the first rank's host, and `port`, or if that is 0,
/// a free port if rank 0 is on this machine and otherwise a random one. Throws Error{invalid} if other hosts could not
/// reach that address; Error{environment} if it cannot listen there.
Rendezvous choose_rendezvous(const std::vector<RankSite>& sites, std::uint16_t port);

}  // namespace troupe::rtrun
