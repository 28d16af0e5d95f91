#include "apps/session/placement_check.hpp"

#include <unistd.h>

#include <algorithm>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"

namespace troupe {
namespace {

constexpr std::size_t kSampledPages = 64;

topology::CpuSet as_set(const std::vector<std::uint32_t>& cpus) {
  topology::CpuSet set;
  for (const std::uint32_t cpu : cpus) set.add(cpu);
  return set;
}

/// The CPUs that the plan gives a thread; lanes may have CPUs of their own.
const std::vector<std::uint32_t>& planned_for(const std::string& thread, const RankPlan& plan) {
  if (thread == "lane-control" && !plan.control_cpus.empty()) return plan.control_cpus;
  if (thread == "lane-bulk" && !plan.bulk_cpus.empty()) return plan.bulk_cpus;
  return plan.cpus;
}

const char* reason_of(NetworkChoice::By by) {
  switch (by) {
    case NetworkChoice::By::nobody: return "";
    case NetworkChoice::By::plan: return " of the plan";
    case NetworkChoice::By::one_node: return ", since all ranks are on one node";
    case NetworkChoice::By::user: return ", since UCX_NET_DEVICES says so";
  }
  return "";
}

std::string line_of(const topology::Finding& finding) {
  return text(finding.severity == topology::Severity::note ? "" : "warning: ", finding.host, ": ", finding.evidence,
              " (", finding.rule, "); ", finding.cure);
}

}  // namespace

PlacementCheck::PlacementCheck(const ProcessPlacement& place, bool whole_process)
    : place_(place), whole_process_(whole_process) {
  if (whole_process_) return;
  for (const ThreadOnCpus& thread : threads_of_process()) others_.insert(thread.id);
}

void PlacementCheck::joined(const Plan& plan, Rank self, std::span<const Hello> hellos, const Settings& settings) {
  const std::lock_guard lock{mutex_};
  const Hello& mine = hellos[self.value];
  for (std::uint32_t rank = 0; rank < hellos.size(); ++rank) {
    const Hello& other = hellos[rank];
    shares_process_ |= rank != self.value && other.pid == mine.pid && other.pid_namespace == mine.pid_namespace &&
                       other.topology.identity == mine.topology.identity;
  }
  planned_ = plan.ranks.at(self.value);
  rank_ = self.value;
  host_ = plan.nodes.at(planned_.node).host;
  threads_stay_ = settings.placement.affinity != "none";
  // Planned devices are compared even if the user chose others.
  if (settings.placement.affinity == "plan" && plan.nodes.size() > 1)
    planned_devices_ = network_choice(plan, self, mine.topology, settings, nullptr).devices;
}

void PlacementCheck::opened(std::vector<std::string> devices) {
  const std::lock_guard lock{mutex_};
  open_devices_ = std::move(devices);
}

/// The caller holds the mutex.
void PlacementCheck::add_threads(topology::Placement& to) {
  if (shares_process_) return;
  std::set<std::int32_t> seen;
  for (const ThreadOnCpus& thread : threads_of_process()) {
    if (others_.contains(thread.id) || (!whole_process_ && !own_.empty() && !own_.contains(thread.id))) continue;
    seen.insert(thread.id);
    topology::CpuSet planned;
    if (threads_stay_) planned = as_set(planned_for(thread.name, planned_));
    to.threads.push_back({thread.name, as_set(thread.cpus), std::move(planned)});
  }
  if (own_.empty()) own_ = std::move(seen);
}

/// The caller holds the mutex.
topology::Placement PlacementCheck::placement(const Arena* shared) {
  topology::Placement found;
  add_threads(found);
  if (const MemoryBinding* const memory = place_.memory()) {
    found.planned_numa = memory->nodes();
    found.memory_refused = memory->refusal();
    if (shared != nullptr) found.pages = memory->locate(shared->base(), shared->size_bytes(), kSampledPages);
  }
  if (!open_devices_) return found;
  found.open_devices = *open_devices_;
  found.chosen_devices = place_.network().users;
  found.planned_devices = planned_devices_;
  return found;
}

topology::Machine PlacementCheck::look(const Arena* shared) {
  const std::lock_guard lock{mutex_};
  topology::Machine machine;
  machine.host = host_;
  topology::RankPlace& rank = machine.ranks.emplace_back();
  rank.rank = rank_;
  rank.pid = ::getpid();
  rank.placement = placement(shared);
  return machine;
}

std::vector<std::string> PlacementCheck::new_differences(const Arena* shared) {
  const topology::Machine machine = look(shared);
  std::vector<std::string> lines;
  for (const topology::Finding& finding : topology::examine({&machine, 1})) {
    const std::lock_guard lock{mutex_};
    std::string line = line_of(finding);
    if (reported_.insert(line).second) lines.push_back(std::move(line));
  }
  return lines;
}

std::string PlacementCheck::describe(const Arena* shared) {
  const topology::Machine machine = look(shared);
  const topology::Placement& place = *machine.ranks.front().placement;
  std::vector<std::string> parts;
  const auto astray = std::count_if(place.threads.begin(), place.threads.end(), [](const topology::ThreadPlace& t) {
    return !t.planned.empty() && !t.planned.includes(t.cpus);
  });
  const RankPlan& mine = place_.rank();
  if (!mine.cpus.empty() && !place.threads.empty()) {
    std::string lanes;
    if (!mine.control_cpus.empty()) lanes += text(", the control lane on ", as_set(mine.control_cpus).list());
    if (!mine.bulk_cpus.empty()) lanes += text(", the bulk lane on ", as_set(mine.bulk_cpus).list());
    parts.push_back(text(place.threads.size() - static_cast<std::size_t>(astray), " of ", place.threads.size(),
                         " threads where the plan has them: on processors ", as_set(mine.cpus).list(), lanes));
  } else {
    parts.push_back("threads are not kept on processors");
  }
  for (const auto& [node, pages] : place.pages)
    parts.push_back(text(pages, " of ", kSampledPages, " sampled pages of shared memory on NUMA node ", node));
  if (place.planned_numa.empty()) parts.push_back("memory is not bound");
  if (!place.open_devices.empty())
    parts.push_back(text("network ", troupe::joined(place.open_devices), reason_of(place_.network().by)));
  std::string all = text("placement: ", troupe::joined(parts, "; "), '\n');
  for (const topology::Finding& finding : topology::examine({&machine, 1})) all += line_of(finding) + '\n';
  return all;
}

}  // namespace troupe
