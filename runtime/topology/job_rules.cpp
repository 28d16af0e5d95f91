#include "runtime/topology/detail/job_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"

namespace troupe::topology::detail {
namespace {

constexpr std::size_t kMostNames = 4;  // of threads in one line
constexpr double kStrayPages = 0.1;    // of a sample; fewer are pages that a full node could not provide

std::string told(const RankPlace& rank) { return text("rank ", rank.rank, " (pid ", rank.pid, ")"); }

std::string nodes_text(const std::vector<std::uint32_t>& nodes) {
  return text(nodes.size() == 1 ? "NUMA node " : "NUMA nodes ", joined(nodes));
}

/// "3 threads (listener, caf.worker)"
std::string threads_text(const std::vector<std::string>& all) {
  std::vector<std::string> names;
  for (const std::string& name : all)
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  const bool more = names.size() > kMostNames;
  if (more) names.resize(kMostNames);
  return all.size() == 1 ? text("thread ", all.front())
                         : text(all.size(), " threads (", joined(names), more ? ", ..." : "", ")");
}

template <class Test>
bool any_placement(const Machine& machine, Test test) {
  return std::any_of(machine.ranks.begin(), machine.ranks.end(),
                     [&](const RankPlace& rank) { return rank.placement && test(*rank.placement); });
}

/// The items of UCX_NET_DEVICES.
std::vector<std::string> devices_of(const std::string& list) {
  std::vector<std::string> devices;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) devices.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return devices;
}

/// Lines of several nodes' logs are compared by people, for whom less does not matter.
constexpr double kSkewMs = 100;

double part_ms(const RankSteps& steps) {
  const std::string& part = steps.slower_part;
  return part == "load"      ? steps.load_ms
         : part == "compute" ? steps.compute_ms
         : part == "update"  ? steps.update_ms
         : part == "copy"    ? steps.copy_ms
                             : steps.exchange_ms;
}

const char* cure_of(const std::string& part) {
  if (part == "load")
    return "look at the disk or file system of its data, at what else reads there, and at what else runs on its "
           "processors";
  if (part == "exchange")
    return "look at its network device, cable and switch port (`rttopo bench --hosts` measures the paths between "
           "nodes)";
  return "look at what else runs on its processors or GPU, and at the other findings of this machine; "
         "placement.split = \"measured\" gives a slower rank fewer samples";
}

}  // namespace

void threads_off_plan(const Machine& machine, std::string_view rule, std::vector<Finding>& findings) {
  for (const RankPlace& rank : machine.ranks) {
    if (!rank.placement) continue;
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> astray;  // by actual and planned processors
    for (const ThreadPlace& thread : rank.placement->threads)
      if (!thread.planned.empty() && !thread.planned.includes(thread.cpus))
        astray[{thread.cpus.list(), thread.planned.list()}].push_back(thread.name);
    for (const auto& [where, names] : astray)
      findings.push_back({std::string{rule}, Severity::warning, machine.host,
                          text(told(rank), ": ", threads_text(names), " may run on processors ", where.first,
                               "; the plan has ", where.second),
                          text("look at what else sets it: a control group's cpuset that lacks processors of the plan, "
                               "OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY, a launcher's binding; where it should "
                               "be so, set placement.affinity = \"none\"")});
  }
}

void memory_off_plan(const Machine& machine, std::string_view rule, std::vector<Finding>& findings) {
  for (const RankPlace& rank : machine.ranks) {
    if (!rank.placement || rank.placement->planned_numa.empty()) continue;
    const Placement& place = *rank.placement;
    std::uint64_t all = 0;
    std::uint64_t astray = 0;
    std::vector<std::uint32_t> elsewhere;
    for (const auto& [node, pages] : place.pages) {
      all += pages;
      if (std::find(place.planned_numa.begin(), place.planned_numa.end(), node) != place.planned_numa.end()) continue;
      astray += pages;
      elsewhere.push_back(node);
    }
    if (static_cast<double>(astray) <= kStrayPages * static_cast<double>(all)) continue;
    findings.push_back({std::string{rule}, Severity::warning, machine.host,
                        text(told(rank), ": ", astray, " of ", all, " sampled pages of its shared memory are on ",
                             nodes_text(elsewhere), "; the plan has ", nodes_text(place.planned_numa)),
                        text("look whether ", nodes_text(place.planned_numa),
                             " has that much free (numactl --hardware), and whether the control group lets memory come "
                             "from there (cpuset.mems)")});
  }
}

void memory_not_bound(const Machine& machine, std::string_view rule, std::vector<Finding>& findings) {
  for (const RankPlace& rank : machine.ranks) {
    if (!rank.placement || rank.placement->memory_refused.empty()) continue;
    findings.push_back({std::string{rule}, Severity::warning, machine.host,
                        text(told(rank), ": memory is not bound to ", nodes_text(rank.placement->planned_numa), ": ",
                             rank.placement->memory_refused),
                        "let the container bind memory (docker: --cap-add SYS_NICE, or a seccomp profile that allows "
                        "mbind and set_mempolicy), or set placement.affinity = \"threads\", which does not bind it"});
  }
}

void network_off_plan(const Machine& machine, std::string_view rule, std::vector<Finding>& findings) {
  for (const RankPlace& rank : machine.ranks) {
    if (!rank.placement || rank.placement->planned_devices.empty()) continue;
    const Placement& place = *rank.placement;
    const std::vector<std::string> planned = devices_of(place.planned_devices);
    const bool used = std::any_of(planned.begin(), planned.end(), [&](const std::string& device) {
      return std::find(place.open_devices.begin(), place.open_devices.end(), device) != place.open_devices.end();
    });
    std::vector<std::string> others = place.open_devices;
    std::erase_if(others, [&](const std::string& device) {
      return std::find(planned.begin(), planned.end(), device) != planned.end();
    });
    if (used && others.empty()) continue;
    const std::string open = place.open_devices.empty() ? "no network device" : joined(place.open_devices);
    if (!place.chosen_devices.empty()) {
      findings.push_back({std::string{rule}, Severity::note, machine.host,
                          text(told(rank), " uses ", open, ", since UCX_NET_DEVICES=", place.chosen_devices,
                               "; the plan has ", place.planned_devices),
                          "unset UCX_NET_DEVICES, where the plan's device is to be used"});
      continue;
    }
    findings.push_back({std::string{rule}, Severity::warning, machine.host,
                        text(told(rank), " uses ", open, "; the plan has ", place.planned_devices),
                        "look whether the device is up and has an address (`ip address`, `ucx_info -d`), or name one "
                        "that is with UCX_NET_DEVICES"});
  }
}

void rank_slow(const Machine& machine, std::string_view rule, std::vector<Finding>& findings) {
  for (const RankPlace& rank : machine.ranks) {
    if (!rank.steps || rank.steps->slower_part.empty()) continue;
    const RankSteps& steps = *rank.steps;
    const std::string why = steps.slower_part == "exchange"
                                ? "what it sent came late"
                                : fmt::format("its {} took {:.3g} ms a step, theirs {:.3g}", steps.slower_part,
                                              part_ms(steps), steps.others_part_ms);
    findings.push_back(
        {std::string{rule}, Severity::warning, machine.host,
         fmt::format("the others waited for rank {} in {} of {} steps: {} (all its parts: load {:.3g}, compute {:.3g}, "
                     "update {:.3g}, copy {:.3g}, exchange {:.3g} ms)",
                     rank.rank, steps.last, steps.steps, why, steps.load_ms, steps.compute_ms, steps.update_ms,
                     steps.copy_ms, steps.exchange_ms),
         cure_of(steps.slower_part)});
  }
}

void clock_skew(const Machine& machine, std::string_view rule, std::vector<Finding>& findings) {
  const double ahead = machine.system.clock_ahead_ms.value_or(0);
  const double within = machine.system.clock_within_ms;
  if (std::abs(ahead) - within < kSkewMs) return;
  findings.push_back({std::string{rule}, Severity::warning, machine.host,
                      fmt::format("its clock is {:.3g} s {} that of rank 0's machine (within {:.3g} ms)",
                                  std::abs(ahead) / 1000, ahead > 0 ? "ahead of" : "behind", within),
                      "start chrony or another NTP service on both machines"});
}

bool knows_threads(const Machine& machine) {
  return any_placement(machine, [](const Placement& place) { return !place.threads.empty(); });
}
bool knows_pages(const Machine& machine) {
  return any_placement(machine, [](const Placement& p) { return !p.planned_numa.empty() && !p.pages.empty(); });
}
bool knows_memory_plan(const Machine& machine) {
  return any_placement(machine, [](const Placement& place) { return !place.planned_numa.empty(); });
}
bool knows_devices(const Machine& machine) {
  return any_placement(machine, [](const Placement& place) { return !place.planned_devices.empty(); });
}

bool knows_steps(const Machine& machine) {
  return std::any_of(machine.ranks.begin(), machine.ranks.end(),
                     [](const RankPlace& rank) { return rank.steps.has_value(); });
}
bool knows_skew(const Machine& machine) { return machine.system.clock_ahead_ms.has_value(); }

}  // namespace troupe::topology::detail
