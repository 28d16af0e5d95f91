#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/fd.hpp"
#include "runtime/config/config.hpp"

namespace troupe::rtrun {

/// Where one rank is started.
struct RankSite {
  std::string host;  // as the configuration names it; empty: this machine, by "local:N"
  bool here = true;  // on this machine, by the kernel; otherwise by the remote shell
  std::uint32_t local_rank = 0;
  std::uint32_t local_ranks = 1;  // of its machine
};

/// By rank, where the configuration wants them: one here when it says nothing.
std::vector<RankSite> sites_of(const Settings::Cluster& cluster, const HostList& hosts);
/// Whether rtrun must start ranks, rather than be the only one.
bool wants_launcher(const std::vector<RankSite>& sites);
/// Those hosts of the list that are this machine.
HostList hosts_here(const HostList& hosts);

/// A socket that listens on a loopback port (0: a free one), and the port. Throws Error{environment}.
std::pair<Fd, std::uint16_t> loopback_listener(std::uint16_t port = 0);

/// Where the ranks of a job meet.
struct Meeting {
  std::string address;  // MASTER_ADDR
  std::uint16_t port = 0;
  Fd listener;  // for rank 0 when it is here: nobody else can take the port
};

/// Chooses it: loopback when all ranks are here; otherwise the first rank's host, and `port`, or if that is 0 a free
/// one when rank 0 is here and else one by chance. Throws Error{invalid} when other hosts could not reach that address;
/// Error{environment} when nothing can listen there.
Meeting meeting_of(const std::vector<RankSite>& sites, std::uint16_t port);

}  // namespace troupe::rtrun
