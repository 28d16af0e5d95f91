#include "runtime/topology/doctor.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "runtime/topology/detail/job_rules.hpp"
#include "runtime/topology/outliers.hpp"
#include "runtime/topology/paths.hpp"

namespace troupe::topology {
namespace {

constexpr std::uint64_t kMostFiles = 4096;           // a job of a few hundred ranks has that many sockets
constexpr std::uint64_t kLockedPerNic = 1ULL << 30;  // buffers that RDMA registers
constexpr std::uint32_t kBusyPercent = 20;           // the links of an idle GPU may be at a low speed
constexpr double kFarShare = 0.2;                    // of a rank's memory
constexpr std::uint64_t kFarBytes = 64ULL << 20;     // anything smaller is code and stacks
constexpr std::uint64_t kUnbounded = 1ULL << 62;
/// NVML's reasons for a lower clock that are faults: thermal and power brakes; not idle GPUs, settings or power caps.
constexpr std::uint64_t kBrakes = 0x8 | 0x20 | 0x40 | 0x80;

struct Context {
  const Machine& machine;
  Index index{machine};
  std::vector<Finding>& findings;

  void add(std::string_view rule, Severity severity, std::string evidence, std::string cure) const {
    findings.push_back({std::string{rule}, severity, machine.host, std::move(evidence), std::move(cure)});
  }
  std::string name(PartIndex part) const {
    const std::string label = label_of(index, part);
    const auto& pci = machine.parts[part].pci;
    return pci && !pci->bus.empty() && label.find(pci->bus) == std::string::npos ? text(label, " (", pci->bus, ")")
                                                                                 : label;
  }
  const Gpu* gpu_of(const RankPlace& rank) const {
    const PartIndex part = rank.gpu.empty() ? kNoPart : index.at_bus(rank.gpu);
    return part == kNoPart ? nullptr : index.gpu_at(part);
  }
  PartIndex nic_named(const std::string& name) const {
    // UCX adds the port: mlx5_0:1.
    const std::string device = name.substr(0, name.find(':'));
    for (const Nic& nic : machine.nics) {
      for (const RdmaPort& port : nic.ports)
        if (port.device == device) return nic.part;
      for (const Interface& interface : nic.interfaces)
        if (interface.name == device) return nic.part;
    }
    return kNoPart;
  }
};

using Check = void (*)(const Context&, std::string_view);

void pci_below_capability(const Context& c, std::string_view rule) {
  for (PartIndex i = 0; i < c.machine.parts.size(); ++i) {
    const auto& pci = c.machine.parts[i].pci;
    if (!pci || pci->now.lanes == 0 || pci->possible.lanes == 0) continue;
    const Gpu* const gpu = c.index.gpu_at(i);
    if (gpu == nullptr && c.index.nic_at(i) == nullptr) continue;
    const bool narrow = pci->now.lanes < pci->possible.lanes;
    const bool loaded = gpu == nullptr || gpu->utilization_percent.value_or(0) >= kBusyPercent;
    const bool slow = loaded && pci->now.gigatransfers < pci->possible.gigatransfers;
    if (!narrow && !slow) continue;
    c.add(rule, Severity::error,
          text(c.name(i), " has a PCI link of ", text_of(pci->now), "; it can have ", text_of(pci->possible)),
          "reseat the card or riser, and look at the slot's settings in the firmware (bifurcation, link speed)");
  }
}

void link_lanes_down(const Context& c, std::string_view rule) {
  const char* const cure =
      "reset the GPU, look into dmesg for NVLink or xGMI errors, and reseat the bridge or baseboard";
  std::set<PartIndex> said;
  for (const AcceleratorLink& link : c.index.links()) {
    if (link.lanes_down == 0) continue;
    said.insert(link.from);
    c.add(rule, Severity::error,
          text(c.name(link.from), ": ", link.lanes_down, " of ", link.lanes, ' ', name_of(link.kind), " lanes",
               link.to.empty() ? "" : " to " + link.to, " are down"),
          cure);
  }
  for (const ShortOfLanes& gpu : gpus_short_of_lanes(c.index)) {
    if (said.contains(gpu.gpu)) continue;
    c.add(rule, Severity::error,
          text(c.name(gpu.gpu), " has ", gpu.lanes, " lanes to its neighbours; most of its kind have ", gpu.usual),
          cure);
  }
}

bool is_below(const Machine& machine, PartIndex part, PartIndex bridge) {
  while (part != kNoPart && part != bridge) part = machine.parts[part].parent;
  return part == bridge;
}

/// Whose way to the processors is over one of the bridges.
std::string devices_behind(const Context& c, const std::vector<PartIndex>& bridges) {
  const auto is_behind = [&](PartIndex part) {
    return std::ranges::any_of(bridges, [&](PartIndex bridge) { return is_below(c.machine, part, bridge); });
  };
  std::vector<std::string> names;
  for (PartIndex part = 0; part < c.machine.parts.size(); ++part)
    if ((c.index.gpu_at(part) != nullptr || c.index.nic_at(part) != nullptr) && is_behind(part))
      names.push_back(c.name(part));
  return joined(names);
}

void switch_link_slow(const Context& c, std::string_view rule) {
  struct Alike {
    std::string what;
    std::size_t peers;
    std::vector<PartIndex> bridges;
  };
  std::vector<Alike> all;
  for (const SlowBridge& each : slow_bridges(c.index)) {
    const PciLink& now = c.machine.parts[each.part].pci->now;
    std::string what = text("a PCI link of ", text_of(now), "; ",
                            each.below ? "what is behind it has " : "others of its kind have ", text_of(each.faster));
    const auto same = [&](const Alike& a) { return a.what == what && a.peers == each.peers; };
    auto at = std::ranges::find_if(all, same);
    if (at == all.end()) at = all.insert(at, {std::move(what), each.peers, {}});
    at->bridges.push_back(each.part);
  }
  for (const auto& [what, peers, bridges] : all) {
    const bool one = bridges.size() == 1;
    std::vector<std::string> names;
    for (const PartIndex bridge : bridges) names.push_back(c.name(bridge));
    const std::string devices = devices_behind(c, bridges);
    c.add(rule, Severity::warning,
          text(joined(names), one ? " has " : " each have ", what,
               !one && bridges.size() == peers
                   ? text(" (all ", peers, " alike: at rest when this was read, or by design)")
                   : "",
               devices.empty() ? "" : text("; ", one ? "over it" : "over them", " the processors reach ", devices)),
          "look again while data is moved, since links may rest at a lower speed; if it stays so, look at the slot's "
          "settings in the firmware (link speed, bifurcation) and reseat the riser or baseboard");
  }
}

void rank_far_from_gpu(const Context& c, std::string_view rule) {
  for (const RankPlace& rank : c.machine.ranks) {
    const Gpu* const gpu = c.gpu_of(rank);
    if (gpu == nullptr || rank.cpus.empty()) continue;
    const CpuSet& near = c.index.cpus(gpu->part);
    if (near.empty() || near.includes(rank.cpus)) continue;
    c.add(rule, Severity::warning,
          text("rank ", rank.rank, " (pid ", rank.pid, ") may run on processors ", rank.cpus.list(), "; its ",
               c.name(gpu->part), " is near ", near.list()),
          text("bind the rank to ", near.list(), " (`taskset -cp ", near.list(), ' ', rank.pid, "`)"));
  }
}

void memory_far(const Context& c, std::string_view rule) {
  for (const RankPlace& rank : c.machine.ranks) {
    std::uint64_t all = 0;
    std::uint64_t far = 0;
    for (const auto& [node, bytes] : rank.numa_bytes) {
      all += bytes;
      bool near = false;
      for (PartIndex i = 0; i < c.machine.parts.size(); ++i) {
        const Part& part = c.machine.parts[i];
        if (part.kind != PartKind::numa || part.os_index != static_cast<std::int64_t>(node)) continue;
        for (const std::uint32_t cpu : rank.cpus.numbers()) near = near || c.index.cpus(i).has(cpu);
      }
      if (!near) far += bytes;
    }
    if (far < kFarBytes || static_cast<double>(far) < kFarShare * static_cast<double>(all)) continue;
    c.add(rule, Severity::warning,
          text("rank ", rank.rank, " (pid ", rank.pid, ") has ", far >> 20, " of ", all >> 20,
               " MiB on NUMA nodes that are not near its processors ", rank.cpus.list()),
          "start it bound to its processors, so that it allocates there (numactl --localalloc)");
  }
}

void nic_far(const Context& c, std::string_view rule) {
  for (const RankPlace& rank : c.machine.ranks) {
    const Gpu* const gpu = c.gpu_of(rank);
    const PartIndex nic = rank.nic.empty() ? kNoPart : c.nic_named(rank.nic);
    if (gpu == nullptr || nic == kNoPart) continue;
    const PartIndex best = nearest_nic(c.index, gpu->part);
    const Path now = best_path(c.index, gpu->part, nic);
    const Path then = best_path(c.index, gpu->part, best);
    if (now.path_class <= then.path_class) continue;
    c.add(rule, Severity::warning,
          text("rank ", rank.rank, " uses ", rank.nic, ", to which its ", c.name(gpu->part), " has a path of class ",
               text_of(now), "; ", label_of(c.index, best), " is nearer (", text_of(then), ")"),
          text("UCX_NET_DEVICES=", label_of(c.index, best), " for this rank"));
  }
}

void shared(const Context& c, std::string_view rule, const char* what,
            const std::map<std::string, std::vector<std::uint32_t>>& users, Severity severity, const char* cure) {
  for (const auto& [device, ranks] : users)
    if (ranks.size() > 1)
      c.add(rule, severity, text("ranks ", joined(ranks), " use the same ", what, ' ', device), cure);
}

void nic_shared(const Context& c, std::string_view rule) {
  std::size_t ports = 0;
  for (const Nic& nic : c.machine.nics) ports += !nic.ports.empty();
  if (ports < 2) return;
  std::map<std::string, std::vector<std::uint32_t>> users;
  for (const RankPlace& rank : c.machine.ranks)
    if (!rank.nic.empty() && c.gpu_of(rank) != nullptr) users[rank.nic].push_back(rank.rank);
  shared(c, rule, "NIC", users, Severity::warning,
         "give each rank the NIC that is nearest to its GPU (`rttopo matrix`)");
}

void gpu_shared(const Context& c, std::string_view rule) {
  std::map<std::string, std::vector<std::uint32_t>> users;
  for (const RankPlace& rank : c.machine.ranks)
    if (!rank.gpu.empty()) users[rank.gpu].push_back(rank.rank);
  shared(c, rule, "GPU", users, Severity::error,
         "start one rank for each GPU, or set CUDA_VISIBLE_DEVICES by the local rank");
}

void peer_to_peer_off(const Context& c, std::string_view rule) {
  if (c.machine.gpus.size() < 2) return;
  for (PartIndex i = 0; i < c.machine.parts.size(); ++i) {
    const auto& pci = c.machine.parts[i].pci;
    if (!pci || !pci->acs_redirect.value_or(false)) continue;
    c.add(rule, Severity::warning,
          text("bridge ", pci->bus, " sends packets between devices behind it up to the processor (ACS)"),
          "switch ACS redirection off for it (setpci ECAP_ACS+6.w), or off in the firmware, where no virtual machines "
          "need it");
  }
  if (c.machine.system.iommu_translates.value_or(false))
    c.add(rule, Severity::warning,
          "the IOMMU translates addresses of devices, which keeps GPUs from each other's memory or makes it slow",
          "boot with iommu=pt (or intel_iommu=off), where no virtual machines need it");
}

void no_gpudirect(const Context& c, std::string_view rule) {
  const bool nvidia =
      std::any_of(c.machine.gpus.begin(), c.machine.gpus.end(), [](const Gpu& g) { return g.vendor == "nvidia"; });
  const bool rdma =
      std::any_of(c.machine.nics.begin(), c.machine.nics.end(), [](const Nic& n) { return !n.ports.empty(); });
  if (!nvidia || !rdma || c.machine.system.peer_memory.value_or(true)) return;
  c.add(rule, Severity::warning,
        "there are NVIDIA GPUs and RDMA ports, but no module nvidia_peermem: every message passes host memory",
        "modprobe nvidia_peermem");
}

void rdma_unused(const Context& c, std::string_view rule) {
  const bool active = std::any_of(c.machine.nics.begin(), c.machine.nics.end(), [](const Nic& nic) {
    return std::any_of(nic.ports.begin(), nic.ports.end(),
                       [](const RdmaPort& port) { return port.active.value_or(false); });
  });
  if (!active) return;
  for (const RankPlace& rank : c.machine.ranks) {
    const std::string& list = rank.transports;
    const bool open = list.empty() || list.find("all") != std::string::npos || list.find("rc") != std::string::npos ||
                      list.find("ib") != std::string::npos || list.find("ud") != std::string::npos ||
                      list.find("dc") != std::string::npos || list.starts_with('^');
    const PartIndex nic = rank.nic.empty() ? kNoPart : c.nic_named(rank.nic);
    const bool plain = nic != kNoPart && c.index.nic_at(nic)->ports.empty();
    if (open && !plain) continue;
    c.add(rule, Severity::warning,
          text("rank ", rank.rank, " sends over TCP (", open ? "UCX_NET_DEVICES=" + rank.nic : "UCX_TLS=" + list,
               ") though RDMA ports are active"),
          "unset UCX_TLS and UCX_NET_DEVICES, or name an RDMA device");
  }
}

void counters_rise(const Context& c, std::string_view rule) {
  for (const Nic& nic : c.machine.nics) {
    for (const RdmaPort& port : nic.ports) {
      for (const auto& [counter, amount] : port.rising)
        c.add(rule, Severity::warning,
              text(port.device, ':', port.port, ": ", counter, " rose by ", amount, " while this looked"),
              "packets are lost or held back: look at cable, flow control (PFC, ECN) and the switch's port");
    }
  }
}

void locked_low(const Context& c, std::string_view rule) {
  const auto& locked = c.machine.limits.locked_bytes;
  const auto ports = static_cast<std::uint64_t>(
      std::count_if(c.machine.nics.begin(), c.machine.nics.end(), [](const Nic& n) { return !n.ports.empty(); }));
  if (!locked || ports == 0 || *locked >= std::min(kUnbounded, ports * kLockedPerNic)) return;
  c.add(rule, Severity::error,
        text("a process may lock ", *locked >> 10, " KiB of memory; RDMA locks every buffer that it registers"),
        "ulimit -l unlimited (limits.conf: memlock; Slurm: PropagateResourceLimitsExcept=MEMLOCK)");
}

void files_low(const Context& c, std::string_view rule) {
  const auto& files = c.machine.limits.open_files;
  if (!files || *files >= kMostFiles) return;
  c.add(rule, Severity::warning, text("a process may open ", *files, " files; ranks have some for each peer"),
        text("ulimit -n ", kMostFiles, " or more"));
}

void quota_low(const Context& c, std::string_view rule) {
  const double quota = c.machine.limits.cpu_quota.value_or(0);
  const std::uint32_t allowed =
      c.machine.limits.allowed.empty() ? count(c.machine).pus : c.machine.limits.allowed.count();
  if (quota == 0 || quota >= allowed) return;
  c.add(rule, Severity::warning,
        text("the control group grants ", quota, " processors' worth of time, but threads may run on ", allowed,
             ": they are stopped when it is used up"),
        text("start at most ", std::max(1, static_cast<int>(quota)), " ranks or threads here, or raise the CPU limit"));
}

void governor(const Context& c, std::string_view rule) {
  const auto& now = c.machine.system.governor;
  if (!now || (*now != "powersave" && *now != "conservative" && *now != "ondemand")) return;
  // Drivers that choose the clock themselves also call their normal mode powersave.
  c.add(rule, *now == "powersave" ? Severity::note : Severity::warning,
        text("processors are run by the frequency governor \"", *now, "\""), "cpupower frequency-set -g performance");
}

void numa_balancing(const Context& c, std::string_view rule) {
  if (!c.machine.system.numa_balancing.value_or(false) || count(c.machine).numa < 2) return;
  c.add(rule, Severity::warning,
        "the kernel moves pages between NUMA nodes by itself, which stalls threads and moves pinned plans",
        "sysctl kernel.numa_balancing=0");
}

void gpu_throttled(const Context& c, std::string_view rule) {
  for (const Gpu& gpu : c.machine.gpus) {
    const std::uint64_t brakes = gpu.throttle_reasons.value_or(0) & kBrakes;
    if (brakes == 0) continue;
    std::string why = (brakes & 0x60) != 0 ? "it is too hot" : "its power supply asks for it";
    if (brakes == 0x8) why = "its hardware slows it down";
    c.add(rule, Severity::error,
          text(c.name(gpu.part), " runs at ", gpu.clock_mhz.value_or(0), " of ", gpu.most_clock_mhz.value_or(0),
               " MHz because ", why),
          "look at fans, airflow and power supplies");
  }
}

void gpu_memory_errors(const Context& c, std::string_view rule) {
  for (const Gpu& gpu : c.machine.gpus) {
    if (gpu.uncorrected_errors.value_or(0) == 0) continue;
    c.add(rule, Severity::error,
          text(c.name(gpu.part), " had ", *gpu.uncorrected_errors, " uncorrectable memory errors (ECC)"),
          "reset the GPU, which retires the rows; replace it if they come back");
  }
}

void gpu_lost(const Context& c, std::string_view rule) {
  for (const Gpu& gpu : c.machine.gpus) {
    if (gpu.state == GpuState::lost)
      c.add(rule, Severity::error, text(c.name(gpu.part), " does not answer: it has fallen off the bus"),
            "look into dmesg for Xid 79; restart the machine, then reseat or replace the GPU");
    if (gpu.state == GpuState::no_permission)
      c.add(rule, Severity::error, text(c.name(gpu.part), " may not be used by this user"),
            "give access to /dev/nvidia* (groups, device cgroup of the container or job)");
  }
}

void gpu_not_in_container(const Context& c, std::string_view rule) {
  for (const std::string& bus : c.machine.system.gpus_without_file)
    c.add(rule, Severity::error, text("the GPU at ", bus, " is on the PCI bus, but /dev has no file for it"),
          "pass it to the container or job (--gpus, --gres=gpu), and load the driver's modules");
}

void gpu_in_instances(const Context& c, std::string_view rule) {
  const auto divided = static_cast<std::size_t>(std::count_if(c.machine.gpus.begin(), c.machine.gpus.end(),
                                                              [](const Gpu& gpu) { return gpu.mig.value_or(false); }));
  if (divided == 0) return;
  c.add(rule, Severity::note,
        text(divided, " of ", c.machine.gpus.size(),
             " GPUs are divided into instances (MIG), which have no links to each other"),
        "nvidia-smi -mig 0, where one rank is to have a whole GPU");
}

void nccl_file_stale(const Context& c, std::string_view rule) {
  const auto& file = c.machine.system.nccl_file;
  const auto& missing = c.machine.system.nccl_file_not_found;
  if (!file || missing.empty()) return;
  if (missing.front().empty()) {
    c.add(rule, Severity::error, text("NCCL_TOPO_FILE=", *file, " cannot be read"),
          "unset it, or name a file that is there");
    return;
  }
  c.add(rule, Severity::error,
        text("NCCL_TOPO_FILE=", *file, " names GPUs or NICs that are not here: ", joined(missing)),
        "unset it, or take the file of this machine type (`rttopo export --format nccl` writes one)");
}

void clock_free(const Context& c, std::string_view rule) {
  if (c.machine.system.clock_synchronized.value_or(true)) return;
  c.add(rule, Severity::note,
        "the kernel's clock is not synchronized: times of different nodes' logs cannot be compared",
        "start chrony or another NTP service");
}

template <class Each, class Test>
bool any(const Each& all, Test test) {
  return std::any_of(all.begin(), all.end(), test);
}
bool knows_links(const Machine& m) {
  const auto known = [&](const auto& device) {
    const auto& pci = m.parts[device.part].pci;
    return pci && pci->now.lanes > 0 && pci->possible.lanes > 0;
  };
  return any(m.gpus, known) || any(m.nics, known);
}
bool knows_lanes(const Machine& m) {
  return any(m.links, [](const AcceleratorLink& link) { return link.lanes > 0; });
}
bool knows_switches(const Machine& m) {
  return any(m.parts, [](const Part& part) {
    return (part.kind == PartKind::pci_switch || part.kind == PartKind::pci_bridge) &&
           bytes_per_second(part.pci->now) > 0;
  });
}
bool knows_ranks(const Machine& m) {
  return any(m.ranks, [](const RankPlace& rank) { return !rank.gpu.empty() && !rank.cpus.empty(); });
}
bool knows_rank_memory(const Machine& m) {
  return any(m.ranks, [](const RankPlace& rank) { return !rank.numa_bytes.empty(); });
}
bool knows_rank_gpus(const Machine& m) {
  return any(m.ranks, [](const RankPlace& rank) { return !rank.gpu.empty(); });
}
bool knows_rank_nics(const Machine& m) {
  return any(m.ranks, [](const RankPlace& rank) { return !rank.gpu.empty() && !rank.nic.empty(); });
}
bool knows_redirection(const Machine& m) {
  return m.gpus.size() > 1 && (m.system.iommu_translates ||
                               any(m.parts, [](const Part& part) { return part.pci && part.pci->acs_redirect; }));
}
bool has_rdma(const Machine& m) {
  return any(m.nics, [](const Nic& nic) { return !nic.ports.empty(); });
}
bool knows_peer_memory(const Machine& m) { return m.system.peer_memory && !m.gpus.empty() && has_rdma(m); }
bool knows_rdma_ranks(const Machine& m) {
  return !m.ranks.empty() && any(m.nics, [](const Nic& nic) {
    return any(nic.ports, [](const RdmaPort& port) { return port.active.has_value(); });
  });
}
/// A file contains counters only if some rose.
bool watched(const Machine& m) {
  return any(m.nics,
             [](const Nic& nic) { return any(nic.ports, [](const RdmaPort& port) { return !port.rising.empty(); }); });
}
bool knows_locked(const Machine& m) { return m.limits.locked_bytes && has_rdma(m); }
bool knows_files(const Machine& m) { return m.limits.open_files.has_value(); }
bool knows_quota(const Machine& m) { return m.limits.cpu_quota.has_value(); }
bool knows_governor(const Machine& m) { return m.system.governor.has_value(); }
bool knows_balancing(const Machine& m) { return m.system.numa_balancing.has_value(); }
bool knows_throttling(const Machine& m) {
  return any(m.gpus, [](const Gpu& gpu) { return gpu.throttle_reasons.has_value(); });
}
bool knows_gpu_errors(const Machine& m) {
  return any(m.gpus, [](const Gpu& gpu) { return gpu.uncorrected_errors.has_value(); });
}
bool knows_gpu_states(const Machine& m) {
  return any(m.gpus, [](const Gpu& gpu) { return gpu.state != GpuState::unknown; });
}
bool looked_at_gpus(const Machine& m) { return knows_gpu_states(m) || !m.system.gpus_without_file.empty(); }
bool knows_instances(const Machine& m) {
  return any(m.gpus, [](const Gpu& gpu) { return gpu.mig.has_value(); });
}
bool knows_nccl_file(const Machine& m) { return m.system.nccl_file.has_value(); }
bool knows_clock(const Machine& m) { return m.system.clock_synchronized.has_value(); }

/// A rule about what ranks reported.
template <void (*look)(const Machine&, std::string_view, std::vector<Finding>&)>
void among_ranks(const Context& c, std::string_view rule) {
  look(c.machine, rule, c.findings);
}

struct Rule {
  RuleName name;
  bool (*applies)(const Machine&);  // whether its data was looked up
  Check check;
};
constexpr std::array kDoctorRules{
    Rule{
        {"pci-below-capability", "a GPU's or NIC's PCI link is narrower or, while it is in use, slower than it can be"},
        knows_links,
        pci_below_capability},
    Rule{{"link-lanes-down", "a GPU has fewer NVLink or xGMI lanes than it should have, or than its peers have"},
         knows_lanes,
         link_lanes_down},
    Rule{{"switch-link-slow",
          "the PCI link of a switch or port is far slower than what is behind it, or than its peers"},
         knows_switches,
         switch_link_slow},
    Rule{{"rank-far-from-gpu", "a rank may run on processors that are not near its GPU"},
         knows_ranks,
         rank_far_from_gpu},
    Rule{{"memory-far", "a rank's memory is on other NUMA nodes than its processors"}, knows_rank_memory, memory_far},
    Rule{{"nic-far", "a rank uses a NIC though another is nearer to its GPU"}, knows_rank_nics, nic_far},
    Rule{{"nic-shared", "ranks with GPUs share one NIC where there are several"}, knows_rank_nics, nic_shared},
    Rule{{"threads-off-plan", "threads of a rank may run on other processors than its plan has"},
         detail::knows_threads,
         among_ranks<detail::threads_off_plan>},
    Rule{{"memory-off-plan", "shared memory of a rank is on other NUMA nodes than its plan has"},
         detail::knows_pages,
         among_ranks<detail::memory_off_plan>},
    Rule{{"memory-not-bound", "the system does not let a rank bind its memory to the NUMA nodes of its plan"},
         detail::knows_memory_plan,
         among_ranks<detail::memory_not_bound>},
    Rule{{"network-off-plan", "a rank's transport uses another network device than its plan has"},
         detail::knows_devices,
         among_ranks<detail::network_off_plan>},
    Rule{{"gpu-shared", "two ranks use the same GPU"}, knows_rank_gpus, gpu_shared},
    Rule{{"peer-to-peer-off", "ACS or the IOMMU keeps GPUs from reaching each other directly"},
         knows_redirection,
         peer_to_peer_off},
    Rule{{"no-gpudirect", "no kernel module lets NICs reach GPU memory"}, knows_peer_memory, no_gpudirect},
    Rule{{"rdma-unused", "a rank sends over TCP though RDMA ports are active"}, knows_rdma_ranks, rdma_unused},
    Rule{
        {"counters-rise", "an RDMA port's counters of retransmissions, pauses or errors rise"}, watched, counters_rise},
    Rule{{"locked-low", "a process may lock less memory than RDMA needs"}, knows_locked, locked_low},
    Rule{{"files-low", "a process may open few files"}, knows_files, files_low},
    Rule{{"quota-low", "the control group grants less processor time than there are processors"},
         knows_quota,
         quota_low},
    Rule{{"governor", "the frequency governor saves power"}, knows_governor, governor},
    Rule{{"numa-balancing", "the kernel moves pages between NUMA nodes"}, knows_balancing, numa_balancing},
    Rule{{"gpu-throttled", "a GPU is slowed down by heat or power"}, knows_throttling, gpu_throttled},
    Rule{{"gpu-memory-errors", "a GPU had uncorrectable memory errors"}, knows_gpu_errors, gpu_memory_errors},
    Rule{{"gpu-lost", "a GPU does not answer, or may not be used"}, knows_gpu_states, gpu_lost},
    Rule{{"gpu-not-in-container", "a GPU is on the bus but has no device file"}, looked_at_gpus, gpu_not_in_container},
    Rule{{"gpu-in-instances", "GPUs are divided into instances"}, knows_instances, gpu_in_instances},
    Rule{{"nccl-file-stale", "NCCL_TOPO_FILE describes another machine"}, knows_nccl_file, nccl_file_stale},
    Rule{{"clock-free", "the clock is not synchronized"}, knows_clock, clock_free},
    Rule{{"clock-skew", "the clocks of a job's machines differ"}, detail::knows_skew, among_ranks<detail::clock_skew>},
    Rule{{"rank-slow", "the other ranks of a job wait for one, and what takes it longer"},
         detail::knows_steps,
         among_ranks<detail::rank_slow>}};

constexpr RuleName kPortDiffers{"port-differs",
                                "a port's rate or MTU is not that of its peers, here or on the other machines"};

/// Compares ports of one kind over all machines: with the same link layer, or plain interfaces.
void ports_differ(std::span<const Machine> machines, std::vector<Finding>& findings) {
  struct Port {
    const Machine* machine;
    std::string name;
    std::string value;
  };
  std::map<std::string, std::vector<Port>> kinds;
  for (const Machine& machine : machines) {
    for (const Nic& nic : machine.nics) {
      for (const RdmaPort& port : nic.ports) {
        if (port.bits_per_second == 0 || !port.active.value_or(true)) continue;
        kinds[text(port.link_layer, " RDMA port")].push_back(
            {&machine, port.device,
             text(static_cast<double>(port.bits_per_second) / 1e9, " Gbit/s, MTU ", port.mtu_bytes)});
      }
      for (const Interface& interface : nic.interfaces) {
        if (interface.mtu_bytes == 0 || !interface.up.value_or(false) || machines.size() < 2) continue;
        kinds["interface " + interface.name].push_back({&machine, interface.name, text("MTU ", interface.mtu_bytes)});
      }
    }
  }
  for (const auto& [kind, ports] : kinds) {
    std::map<std::string, std::size_t> votes;
    for (const Port& port : ports) ++votes[port.value];
    const auto most =
        std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    for (const Port& port : ports) {
      if (port.value == most->first) continue;
      findings.push_back({std::string{kPortDiffers.id}, Severity::warning, port.machine->host,
                          text(port.name, " has ", port.value, "; most have ", most->first),
                          "look at cable, negotiated rate and the MTU setting of this port and its switch"});
    }
  }
}

}  // namespace

std::string_view name_of(Severity severity) noexcept {
  return severity == Severity::note ? "note" : severity == Severity::warning ? "warning" : "error";
}

std::vector<RuleName> doctor_rules() {
  std::vector<RuleName> names;
  for (const Rule& rule : kDoctorRules) names.push_back(rule.name);
  names.push_back(kPortDiffers);
  return names;
}

std::vector<RuleName> applied_rules(std::span<const Machine> machines) {
  std::vector<RuleName> names;
  for (const Rule& rule : kDoctorRules)
    if (any(machines, rule.applies)) names.push_back(rule.name);
  std::size_t ports = 0;
  for (const Machine& machine : machines)
    for (const Nic& nic : machine.nics)
      for (const RdmaPort& port : nic.ports) ports += port.bits_per_second > 0;
  const bool interfaces = machines.size() > 1 && any(machines, [](const Machine& m) {
                            return any(m.nics, [](const Nic& nic) {
                              return any(nic.interfaces, [](const Interface& i) { return i.mtu_bytes > 0; });
                            });
                          });
  if (ports > 1 || interfaces) names.push_back(kPortDiffers);
  return names;
}

std::vector<Finding> examine(std::span<const Machine> machines) {
  std::vector<Finding> findings;
  for (const Machine& machine : machines) {
    const Context context{.machine = machine, .findings = findings};
    for (const Rule& rule : kDoctorRules) rule.check(context, rule.name.id);
  }
  ports_differ(machines, findings);
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return findings;
}

}  // namespace troupe::topology
