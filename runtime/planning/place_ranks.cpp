#include "runtime/planning/detail/place_ranks.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "runtime/base/error.hpp"

namespace troupe::detail {
namespace {

constexpr std::size_t kLanes = 2;

/// Cores in the order in which they are given out: neighbours share a NUMA node.
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

std::vector<std::uint32_t> numa_nodes_of(const Topology& node, std::span<const Core> cores) {
  std::set<std::uint32_t> numbers;
  for (const Core& core : cores)
    if (core.numa < node.numa.size()) numbers.insert(node.numa[core.numa].os_index);
  return {numbers.begin(), numbers.end()};
}

/// The first `share` cores are for the device and all other threads, the rest for lanes.
void take(RankPlan& rank, const Topology& node, std::span<const Core> cores, std::size_t share) {
  rank.cpus = cpus_of(cores.first(share));
  rank.numa_nodes = numa_nodes_of(node, cores.first(share));
  rank.device_threads = static_cast<std::uint32_t>(share);
  if (cores.size() > share) rank.control_cpus = cpus_of(cores.subspan(share, 1));
  if (cores.size() > share + 1) rank.bulk_cpus = cpus_of(cores.subspan(share + 1, 1));
}

/// A lane that polls uses a core's time, so it needs a quota for it.
void respect_quota_of_lanes(double share, RankPlan& rank) {
  const double lanes = (rank.control_cpus.empty() ? 0 : 1) + (rank.bulk_cpus.empty() ? 0 : 1);
  if (share >= rank.device_threads + lanes) return;
  rank.control_cpus.clear();
  rank.bulk_cpus.clear();
}

const char* plural(std::size_t count) { return count == 1 ? "" : "s"; }

/// A placement.device_threads that is a number, of the cores that ranks have got.
void set_threads(std::uint32_t wanted, const std::string& host, const std::vector<RankPlan*>& ranks) {
  for (RankPlan* rank : ranks) {
    if (wanted == 0) continue;
    TROUPE_CHECK(wanted <= rank->device_threads, Code::invalid, "placement.device_threads = ", wanted, ", but rank ",
                 rank->rank.value, " on node ", host, " has ", rank->device_threads, " core",
                 plural(rank->device_threads),
                 "; ask for as many threads at most, or for more cores (placement.cores)");
    rank->device_threads = wanted;
  }
}

void tell_of_trial(const std::string& host, const std::vector<RankPlan*>& ranks, std::vector<std::string>& reasons) {
  if (std::ranges::any_of(ranks, [](const RankPlan* rank) { return rank->gpu.empty() && rank->device_threads > 1; })) {
    reasons.push_back(text("Node ", host,
                           ": placement.device_threads = \"auto\" lets a trial at the start find on how ",
                           "many of its cores each rank's device computes."));
  }
}

/// A control group may grant less time than there are cores: then fewer threads, unless their number was asked for, and
/// none that poll.
void respect_quota(double quota, bool threads_are_given, const std::string& host, const std::vector<RankPlan*>& ranks,
                   std::vector<std::string>& reasons) {
  const double share = quota / static_cast<double>(ranks.size());
  bool short_of_time = false;
  for (RankPlan* rank : ranks) {
    if (quota > 0) respect_quota_of_lanes(share, *rank);
    if (quota <= 0 || share >= rank->device_threads) continue;
    if (!threads_are_given) rank->device_threads = std::max(1u, static_cast<std::uint32_t>(std::floor(share)));
    rank->may_spin = false;
    short_of_time = true;
  }
  if (!short_of_time) return;
  reasons.push_back(text("Node ", host, ": a control group grants the time of ", std::round(quota * 100) / 100, " core",
                         quota == 1 ? "" : "s", " to ", ranks.size(), " rank", plural(ranks.size()),
                         ", less than their cores: ", threads_are_given ? "" : "threads by that time, and ",
                         "waits sleep at once."));
}

/// placement.affinity = "none": no thread is pinned, so lanes have no cores of their own, and no wait polls.
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

/// placement.policy = "auto": cores in order; ranks share them if there are fewer cores than ranks.
void place_in_order(const Settings::Placement& placement, const Topology& node, const std::string& host,
                    const std::vector<Core>& cores, const std::vector<RankPlan*>& ranks, bool with_lanes,
                    std::vector<std::string>& reasons) {
  const std::size_t wanted = placement.cores;
  const bool shared = cores.size() < ranks.size();
  const std::size_t share = shared ? 1 : wanted != 0 ? wanted : cores.size() / ranks.size();
  const std::size_t spare = shared || !with_lanes ? 0 : cores.size() / ranks.size() - share;
  const std::size_t lanes = std::min(spare, kLanes);
  std::size_t across = 0;  // ranks with cores of several NUMA nodes
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::size_t first = shared ? i % cores.size() : i * (share + lanes);
    const auto own = std::span{cores}.subspan(first, share + lanes);
    take(*ranks[i], node, own, share);
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
}

/// The cores of one NUMA node.
struct Pool {
  std::uint32_t numa = 0;
  std::size_t size = 0;
  std::vector<Core> free;  // not given to a rank yet
  std::size_t ranks = 0;   // number of ranks whose home this is
};

/// For each rank, the NUMA nodes that its cores come from, as indices of pools.
using Homes = std::vector<std::vector<std::size_t>>;

std::vector<Pool> pools_of(const std::vector<Core>& cores) {
  std::vector<Pool> pools;
  for (const Core& core : cores) {
    if (pools.empty() || pools.back().numa != core.numa) pools.push_back({.numa = core.numa, .free = {}});
    pools.back().free.push_back(core);
    ++pools.back().size;
  }
  return pools;
}

/// Ranks as far from each other as pools allow, in the order of pools. If there are fewer ranks than pools, each rank
/// gets several consecutive pools.
Homes spread_out(const std::vector<Pool>& pools, std::size_t ranks) {
  Homes homes(ranks);
  if (ranks <= pools.size()) {
    for (std::size_t i = 0; i < ranks; ++i)
      for (std::size_t p = i * pools.size() / ranks; p < (i + 1) * pools.size() / ranks; ++p) homes[i].push_back(p);
    return homes;
  }
  std::vector<std::size_t> counts(pools.size());
  for (std::size_t i = 0; i < ranks; ++i) {  // the pool in which one more rank leaves the most cores for each
    std::size_t best = 0;
    for (std::size_t p = 1; p < pools.size(); ++p)
      if (pools[p].size * (counts[best] + 1) > pools[best].size * (counts[p] + 1)) best = p;
    ++counts[best];
  }
  std::size_t next = 0;
  for (std::size_t p = 0; p < pools.size(); ++p)
    for (std::size_t i = 0; i < counts[p]; ++i) homes[next++] = {p};
  return homes;
}

/// How many cores each of `ranks` can have if none has cores of two pools; 0: there are not enough.
std::size_t packed_share(const std::vector<Pool>& pools, std::size_t ranks) {
  std::size_t share = 0;
  for (const Pool& pool : pools) share = std::max(share, pool.size);
  const auto room = [&] {
    std::size_t all = 0;
    for (const Pool& pool : pools) all += pool.size / share;
    return all;
  };
  while (share > 0 && room() < ranks) --share;
  return share;
}

/// Fills pool after pool with `share` cores per rank; a rank that needs more cores than a pool has gets several
/// consecutive pools. Empty: there are not enough.
Homes packed(const std::vector<Pool>& pools, std::size_t ranks, std::size_t share) {
  Homes homes;
  std::size_t left = pools.empty() ? 0 : pools[0].size;  // of pool p
  for (std::size_t p = 0; p < pools.size() && homes.size() < ranks;) {
    if (left >= share) {
      homes.push_back({p});
      left -= share;
      continue;
    }
    std::vector<std::size_t> row;
    std::size_t cores = 0;
    for (std::size_t q = p; left == pools[p].size && q < pools.size() && cores < share; ++q) {
      row.push_back(q);
      cores += pools[q].size;
    }
    const bool fills_row = !row.empty() && cores >= share;
    if (fills_row) homes.push_back(row);
    p += fills_row ? row.size() : 1;
    if (p < pools.size()) left = pools[p].size;
  }
  return homes.size() == ranks ? homes : Homes{};
}

/// Each rank in the pool of its accelerator, if that is known; if there are fewer accelerators than ranks, several
/// ranks share one.
Homes near_accelerators(const Topology& node, const std::vector<Pool>& pools, const std::vector<RankPlan*>& ranks) {
  const std::size_t devices = node.accelerators.size(), count = ranks.size();
  Homes homes = spread_out(pools, count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto own = std::ranges::find(node.accelerators, ranks[i]->accelerator, &Accelerator::name);
    const Accelerator& near =
        own != node.accelerators.end() ? *own : node.accelerators[count <= devices ? i : i * devices / count];
    const std::int32_t numa = near.numa;
    const auto pool = std::find_if(pools.begin(), pools.end(),
                                   [&](const Pool& p) { return static_cast<std::int32_t>(p.numa) == numa; });
    if (pool != pools.end()) homes[i] = {static_cast<std::size_t>(pool - pools.begin())};
  }
  return homes;
}

/// Takes `count` of the pool's free cores: from one level 3 cache if one has that many; if several have, from the one
/// with the most (`apart`) or the fewest free cores.
void take_cores(std::vector<Core>& to, Pool& pool, std::size_t count, bool apart) {
  std::map<std::uint32_t, std::size_t> caches;
  for (const Core& core : pool.free) ++caches[core.l3];
  const std::pair<const std::uint32_t, std::size_t>* best = nullptr;
  for (const auto& cache : caches) {
    const bool better = best == nullptr || (apart ? cache.second > best->second : cache.second < best->second);
    if (cache.second >= count && better) best = &cache;
  }
  std::stable_partition(pool.free.begin(), pool.free.end(),
                        [&](const Core& core) { return best != nullptr && core.l3 == best->first; });
  const auto end = pool.free.begin() + static_cast<std::ptrdiff_t>(count);
  to.insert(to.end(), pool.free.begin(), end);
  pool.free.erase(pool.free.begin(), end);
  std::sort(pool.free.begin(), pool.free.end(), [](const Core& a, const Core& b) { return a.index < b.index; });
}

/// Gives all ranks the same number of cores, each from its home. If a pool has several ranks, none of them has cores of
/// another pool.
class PlacementAtHome {
 public:
  PlacementAtHome(const Topology& node, std::vector<Pool> pools, Homes homes, bool apart)
      : node_(node), pools_(std::move(pools)), homes_(std::move(homes)), apart_(apart) {
    for (const auto& home : homes_)
      for (const std::size_t p : home) ++pools_[p].ranks;
  }

  /// The largest number of cores that every rank can have.
  std::size_t most() const {
    std::size_t least = ~std::size_t{0};
    for (const auto& home : homes_) least = std::min(least, room_of(home));
    return least;
  }
  /// The pool in which ranks have the fewest cores each.
  const Pool& tightest() const {
    return *std::min_element(pools_.begin(), pools_.end(), [](const Pool& a, const Pool& b) {
      return a.size * std::max<std::size_t>(b.ranks, 1) < b.size * std::max<std::size_t>(a.ranks, 1);
    });
  }
  std::size_t left_free() const {
    std::size_t cores = 0;
    for (const Pool& pool : pools_) cores += pool.free.size();
    return cores;
  }

  void place(const std::vector<RankPlan*>& ranks, std::size_t share, std::size_t lanes) {
    std::vector<std::vector<Core>> cores(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) fill(cores[i], homes_[i], share);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      for (std::size_t lane = 0; lane < lanes; ++lane) add_lane(cores[i], homes_[i]);
      take(*ranks[i], node_, cores[i], share);
      ranks[i]->may_spin = true;
    }
  }

 private:
  std::size_t room_of(const std::vector<std::size_t>& home) const {
    std::size_t cores = 0;
    for (const std::size_t p : home) cores += pools_[p].size / pools_[p].ranks;
    return cores;
  }
  void fill(std::vector<Core>& cores, const std::vector<std::size_t>& home, std::size_t share) {
    for (const std::size_t p : home)
      if (pools_[p].free.size() >= share) return take_cores(cores, pools_[p], share, apart_);
    for (const std::size_t p : home) {
      const std::size_t some = std::min(share - cores.size(), pools_[p].free.size());
      if (some > 0) take_cores(cores, pools_[p], some, apart_);
    }
  }
  /// Adds a core for a lane, if possible one that shares the level 3 cache.
  void add_lane(std::vector<Core>& cores, const std::vector<std::size_t>& home) {
    for (const bool near : {true, false}) {
      for (const std::size_t p : home) {
        std::vector<Core>& free = pools_[p].free;
        const auto at = std::find_if(free.begin(), free.end(),
                                     [&](const Core& core) { return !near || core.l3 == cores.front().l3; });
        if (at == free.end()) continue;
        cores.push_back(*at);
        free.erase(at);
        return;
      }
    }
  }

  const Topology& node_;
  std::vector<Pool> pools_;
  Homes homes_;
  const bool apart_;
};

/// How many cores of its home a rank leaves to its lanes.
std::size_t lanes_beside(std::size_t wanted, std::size_t most, bool with_lanes) {
  return with_lanes && wanted != 0 ? std::min(most - wanted, kLanes) : 0;
}

/// placement.policy = "spread" or "pack".
void place_by_numa(const Settings::Placement& placement, const Topology& node, const std::string& host,
                   const std::vector<Core>& cores, const std::vector<RankPlan*>& ranks, bool with_lanes,
                   std::vector<std::string>& reasons) {
  const bool spread = placement.policy == "spread";
  TROUPE_CHECK(cores.size() >= ranks.size(), Code::invalid, "placement.policy = \"", placement.policy,
               "\" gives each rank cores of its own, but node ", host, " has ", cores.size(), " core",
               plural(cores.size()), " that this job may use, for ", ranks.size(),
               " ranks; use fewer ranks, or \"auto\"");
  const std::size_t wanted = placement.cores;
  std::vector<Pool> pools = pools_of(cores);
  const std::size_t several = pools.size();
  const std::size_t share = wanted != 0 ? wanted : packed_share(pools, ranks.size());
  Homes homes = spread ? spread_out(pools, ranks.size()) : packed(pools, ranks.size(), share);
  TROUPE_CHECK(
      !homes.empty(), Code::invalid, "placement.policy = \"pack\" and placement.cores = ", wanted, ": the ", several,
      " NUMA node", plural(several), " of node ", host, " with ", cores.size(),
      " cores that this job may use cannot hold ", ranks.size(),
      " ranks if no rank has cores of two NUMA nodes; ask for fewer cores or ranks, or write placement.policy = "
      "\"auto\"");
  PlacementAtHome at_home{node, std::move(pools), std::move(homes), spread};
  const std::size_t most = at_home.most();
  if (spread && wanted > most) {
    const Pool& tight = at_home.tightest();
    const std::size_t number = tight.numa < node.numa.size() ? node.numa[tight.numa].os_index : tight.numa;
    fail(Code::invalid, text("placement.cores = ", wanted, " for each of ", tight.ranks, " rank", plural(tight.ranks),
                             " on NUMA node ", number, " of node ", host, " needs ", wanted * tight.ranks,
                             " cores, but this job may use ", tight.size, " there; ask for at most ", most,
                             ", use fewer ranks, or write placement.policy = \"auto\""));
  }
  const std::size_t each = wanted != 0 ? wanted : spread ? most : share;
  at_home.place(ranks, each, lanes_beside(wanted, most, with_lanes));
  const std::size_t left = at_home.left_free();
  reasons.push_back(text("Node ", host, ": placement.policy = \"", placement.policy, "\" places ", ranks.size(),
                         " rank", plural(ranks.size()), " of ", each, " core", plural(each), spread ? " over " : " on ",
                         several, " NUMA node", plural(several), " with cores",
                         left > 0 ? text("; ", left, left == 1 ? " core is" : " cores are", " left free") : "", "."));
}

/// Returns whether each rank got cores near an accelerator.
bool place_near_accelerators(const Settings::Placement& placement, const Topology& node, const std::string& host,
                             const std::vector<Core>& cores, const std::vector<RankPlan*>& ranks, bool with_lanes,
                             std::vector<std::string>& reasons) {
  const auto is_known = [](const Accelerator& device) { return device.numa >= 0; };
  if (std::none_of(node.accelerators.begin(), node.accelerators.end(), is_known)) return false;
  std::vector<Pool> pools = pools_of(cores);
  Homes homes = near_accelerators(node, pools, ranks);
  PlacementAtHome at_home{node, std::move(pools), std::move(homes), /*apart=*/true};
  const std::size_t most = at_home.most();
  if (most == 0 || placement.cores > most) return false;
  at_home.place(ranks, placement.cores != 0 ? placement.cores : most, lanes_beside(placement.cores, most, with_lanes));
  const bool on_gpus = std::ranges::any_of(ranks, [](const RankPlan* rank) { return !rank->gpu.empty(); });
  reasons.push_back(
      text("Node ", host, ": each rank has cores near its GPU", on_gpus ? "." : ", and computes on the cores."));
  return true;
}

/// Gives each rank an accelerator that no other rank has, near its memory if there is one.
void name_accelerators(const Topology& node, const std::vector<RankPlan*>& ranks) {
  std::vector<bool> used(node.accelerators.size());
  for (const RankPlan* rank : ranks)
    for (std::size_t a = 0; a < used.size(); ++a)
      if (node.accelerators[a].name == rank->accelerator) used[a] = true;
  const auto number = [&](const Accelerator& device) {
    return device.numa < 0 ? -1 : static_cast<std::int64_t>(node.numa[static_cast<std::size_t>(device.numa)].os_index);
  };
  for (const bool near : {true, false}) {
    for (RankPlan* rank : ranks) {
      for (std::size_t a = 0; a < used.size() && rank->accelerator.empty(); ++a) {
        const bool fits =
            !near || std::count(rank->numa_nodes.begin(), rank->numa_nodes.end(), number(node.accelerators[a])) > 0;
        if (used[a] || !fits) continue;
        used[a] = true;
        rank->accelerator = node.accelerators[a].name;
      }
    }
  }
}

}  // namespace

void place_on_cores(const Settings::Placement& placement, const Topology& node, const std::string& host,
                    const std::vector<RankPlan*>& ranks, bool with_lanes, std::vector<std::string>& reasons) {
  const std::vector<Core> cores = ordered_cores(node);
  TROUPE_CHECK(!cores.empty(), Code::environment, "node ", host,
               " has no core that this job may use; look at the CPU affinity "
               "(taskset -p) and at the cpuset of its control group");
  const std::size_t wanted = placement.cores * ranks.size();
  const std::size_t most = cores.size() / ranks.size();
  TROUPE_CHECK(wanted <= cores.size(), Code::invalid, "placement.cores = ", placement.cores, " for each of ",
               ranks.size(), " rank", plural(ranks.size()), " on node ", host, " needs ", wanted,
               " cores, but this job may use ", cores.size(), " there; ask for ",
               most > 0 ? text("at most ", most, ", or for ") : "", "0 to share out what there is");
  const bool has_devices = placement.device != "cpu" && !node.accelerators.empty();
  if (placement.policy != "auto")
    place_by_numa(placement, node, host, cores, ranks, with_lanes, reasons);
  else if (!has_devices || !place_near_accelerators(placement, node, host, cores, ranks, with_lanes, reasons))
    place_in_order(placement, node, host, cores, ranks, with_lanes, reasons);
  if (has_devices) name_accelerators(node, ranks);
  set_threads(placement.device_threads.count, host, ranks);
  respect_quota(node.cpu_quota, placement.device_threads.count != 0, host, ranks, reasons);
  if (placement.device_threads.tried) tell_of_trial(host, ranks, reasons);
  if (placement.affinity == "none") keep_none(host, ranks, reasons);
  if (!ranks.front()->control_cpus.empty()) {
    reasons.push_back(text("Node ", host, ": placement.cores leaves cores free: each rank's control lane has one",
                           ranks.front()->bulk_cpus.empty() ? "" : ", its bulk lane another",
                           ", where the control lane polls."));
  }
}

}  // namespace troupe::detail
