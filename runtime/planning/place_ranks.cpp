#include "runtime/planning/detail/place_ranks.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <tuple>

#include "runtime/base/error.hpp"

namespace troupe::detail {
namespace {

constexpr std::size_t kLanes = 2;

/// Cores in the order in which they are shared out: neighbours share a NUMA node.
std::vector<Core> ordered_cores(const Topology& node) {
  std::vector<Core> cores = node.cores;
  std::erase_if(cores, [](const Core& core) { return core.cpus.empty(); });
  std::sort(cores.begin(), cores.end(), [](const Core& a, const Core& b) {
    return std::tie(a.numa, a.index, a.cpus) < std::tie(b.numa, b.index, b.cpus);
  });
  return cores;
}

std::vector<std::uint32_t> cpus_of(std::span<const Core> cores) {
  std::vector<std::uint32_t> cpus;
  for (const Core& core : cores) cpus.insert(cpus.end(), core.cpus.begin(), core.cpus.end());
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

/// The first `share` of `cores` for the device and everything else, the rest for lanes.
void take(RankPlan& rank, std::span<const Core> cores, std::size_t share) {
  rank.cpus = cpus_of(cores.first(share));
  rank.device_threads = static_cast<std::uint32_t>(share);
  if (cores.size() > share) rank.control_cpus = cpus_of(cores.subspan(share, 1));
  if (cores.size() > share + 1) rank.bulk_cpus = cpus_of(cores.subspan(share + 1, 1));
}

/// A lane that polls takes a core's time: it needs to be granted.
void respect_quota_of_lanes(double share, RankPlan& rank) {
  const double lanes = (rank.control_cpus.empty() ? 0 : 1) + (rank.bulk_cpus.empty() ? 0 : 1);
  if (share >= rank.device_threads + lanes) return;
  rank.control_cpus.clear();
  rank.bulk_cpus.clear();
}

const char* plural(std::size_t count) { return count == 1 ? "" : "s"; }

/// A control group may grant less time than there are cores: then fewer threads, and none that poll.
void respect_quota(double quota, const std::string& host, const std::vector<RankPlan*>& ranks,
                   std::vector<std::string>& reasons) {
  const double share = quota / static_cast<double>(ranks.size());
  bool short_of_time = false;
  for (RankPlan* rank : ranks) {
    if (quota > 0) respect_quota_of_lanes(share, *rank);
    if (quota <= 0 || share >= rank->device_threads) continue;
    rank->device_threads = std::max(1u, static_cast<std::uint32_t>(std::floor(share)));
    rank->may_spin = false;
    short_of_time = true;
  }
  if (!short_of_time) return;
  reasons.push_back(text("Node ", host, ": a control group grants the time of ", std::round(quota * 100) / 100, " core",
                         quota == 1 ? "" : "s", " to ", ranks.size(), " rank", plural(ranks.size()),
                         ", less than their cores: threads by that time, and waits sleep at once."));
}

/// placement.affinity = "none": no thread stays on these cores, so none of them is a lane's own, nor to be polled on.
void keep_none(const std::string& host, const std::vector<RankPlan*>& ranks, std::vector<std::string>& reasons) {
  for (RankPlan* rank : ranks) {
    rank->control_cpus.clear();
    rank->bulk_cpus.clear();
    rank->may_spin = false;
  }
  reasons.push_back(text("Node ", host,
                         ": placement.affinity = \"none\" keeps no thread on these cores, so waits sleep ",
                         "at once instead of polling."));
}

}  // namespace

void place_on_cores(const Settings::Placement& placement, const Topology& node, const std::string& host,
                    const std::vector<RankPlan*>& ranks, bool with_lanes, std::vector<std::string>& reasons) {
  const std::vector<Core> cores = ordered_cores(node);
  TROUPE_CHECK(!cores.empty(), Code::environment, "node ", host,
               " has no core that this job may use; look at the CPU affinity "
               "(taskset -p) and at the cpuset of its control group");
  const std::size_t wanted = placement.cores;
  const std::size_t most = cores.size() / ranks.size();
  TROUPE_CHECK(wanted * ranks.size() <= cores.size(), Code::invalid, "placement.cores = ", wanted, " for each of ",
               ranks.size(), " rank", plural(ranks.size()), " on node ", host, " needs ", wanted * ranks.size(),
               " cores, but this job may use ", cores.size(), " there; ask for ",
               most > 0 ? text("at most ", most, ", or for ") : "", "0 to share out what there is");
  const bool shared = cores.size() < ranks.size();
  const std::size_t share = shared ? 1 : wanted != 0 ? wanted : cores.size() / ranks.size();
  const std::size_t spare = shared || !with_lanes ? 0 : cores.size() / ranks.size() - share;
  const std::size_t lanes = std::min(spare, kLanes);
  std::size_t across = 0;  // ranks with cores of several NUMA nodes
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::size_t first = shared ? i % cores.size() : i * (share + lanes);
    const auto own = std::span{cores}.subspan(first, share + lanes);
    take(*ranks[i], own, share);
    ranks[i]->may_spin = !shared;
    across += own.front().numa != own[share - 1].numa;
  }
  if (shared) {
    reasons.push_back(text("Node ", host, ": ", ranks.size(), " ranks share ", cores.size(), " core",
                           plural(cores.size()), ", so waits sleep at once instead of polling."));
  } else if (wanted == 0 && cores.size() % ranks.size() != 0) {
    const std::size_t left = cores.size() % ranks.size();
    reasons.push_back(text("Node ", host, ": ", left, " of ", cores.size(), " cores ", left == 1 ? "is" : "are",
                           " left free, since all ranks get the same number."));
  }
  if (across != 0) {
    reasons.push_back(text("Node ", host, ": ", across, " rank", plural(across), across == 1 ? " has" : " have",
                           " cores of several NUMA nodes; a number of ranks that the NUMA nodes divide avoids it."));
  }
  respect_quota(node.cpu_quota, host, ranks, reasons);
  if (placement.affinity == "none") keep_none(host, ranks, reasons);
  if (!ranks.front()->control_cpus.empty()) {
    reasons.push_back(text("Node ", host, ": placement.cores leaves cores free: each rank's control lane has one",
                           ranks.front()->bulk_cpus.empty() ? "" : ", its bulk lane another",
                           ", where the control lane polls."));
  }
}

}  // namespace troupe::detail
