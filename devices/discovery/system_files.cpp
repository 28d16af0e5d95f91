#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "devices/discovery/detail/files.hpp"
#include "devices/discovery/detail/system_files.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"

namespace troupe::detail {
namespace {

using namespace topology;
namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kWatch{200};
/// Of an RDMA port: retransmitted and out-of-order packets, and pauses.
constexpr const char* kCounters[] = {"out_of_sequence",        "packet_seq_err",       "local_ack_timeout_err",
                                     "rnr_nak_retry_err",      "rx_icrc_encapsulated", "roce_adp_retrans",
                                     "roce_slow_restart_cnps", "rp_cnp_handled"};
constexpr const char* kErrorCounters[] = {"symbol_error", "link_downed", "port_rcv_errors", "port_xmit_discards"};

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (auto at = fs::directory_iterator{folder, none}; !none && at != fs::directory_iterator{}; at.increment(none))
    names.push_back(at->path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// The last part of a link's target, which is the kernel's name of drivers and functions.
std::string link_name(const std::string& path) {
  std::error_code none;
  const fs::path target = fs::read_symlink(path, none);
  return none ? std::string{} : target.filename().string();
}

double leading_number(const std::optional<std::string>& text) {
  double value = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value > 0 && value < 1e6 ? value : 0;
}

PciLink read_link(const std::string& folder, const char* which) {
  PciLink link;
  link.gigatransfers = leading_number(read_small_file(folder + '/' + which + "_link_speed"));
  const auto lanes = number_in_file<std::uint64_t>(folder + '/' + which + "_link_width");
  link.lanes = lanes && *lanes <= 64 ? static_cast<std::uint32_t>(*lanes) : 0;  // 255: unknown
  return link;
}

/// Whether a bridge's ACS capability has redirection on; only root can read that part of the configuration space.
std::optional<bool> acs_redirect(const std::string& folder) {
  const auto config = read_small_file(folder + "/config");
  if (!config || config->size() < 4096) return std::nullopt;
  const auto byte = [&](std::size_t at) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>((*config)[at]));
  };
  std::size_t at = 0x100;
  for (int steps = 0; at >= 0x100 && at + 8 <= config->size() && steps < 64; ++steps) {
    const std::uint32_t header = byte(at) | byte(at + 1) << 8 | byte(at + 2) << 16 | byte(at + 3) << 24;
    if ((header & 0xffff) == 0x000d) return ((byte(at + 6) | byte(at + 7) << 8) & 0x0c) != 0;  // request or completion
    at = header >> 20;
  }
  return std::nullopt;
}

using Counters = std::map<std::string, std::uint64_t>;
Counters read_counters(const std::string& port) {
  Counters all;
  for (const char* name : kCounters)
    if (const auto value = number_in_file<std::uint64_t>(port + "/hw_counters/" + name)) all[name] = *value;
  for (const char* name : kErrorCounters)
    if (const auto value = number_in_file<std::uint64_t>(port + "/counters/" + name)) all[name] = *value;
  return all;
}

std::string port_folder(const std::string& root, const RdmaPort& port) {
  return text(root, "/sys/class/infiniband/", port.device, "/ports/", port.port);
}

void read_port(RdmaPort& port, const std::string& root) {
  const std::string folder = port_folder(root, port);
  if (const auto state = read_small_file(folder + "/state")) port.active = state->starts_with("4");  // "4: ACTIVE"
  if (const auto layer = read_small_file(folder + "/link_layer")) port.link_layer = *layer;
  const double gigabits = leading_number(read_small_file(folder + "/rate"));  // "200 Gb/sec (4X HDR)"
  if (gigabits > 0) port.bits_per_second = static_cast<std::uint64_t>(gigabits * 1e9);
  if (const auto guid = read_small_file(root + "/sys/class/infiniband/" + port.device + "/node_guid"))
    port.guid = *guid;
}

/// Adds ports and interfaces in /sys that hwloc did not report.
void read_nic(topology::Nic& nic, const std::string& bus, const std::string& root) {
  const std::string folder = root + "/sys/bus/pci/devices/" + bus;
  nic.driver = link_name(folder + "/driver");
  for (const std::string& device : names_in(folder + "/infiniband")) {
    const std::string about = root + "/sys/class/infiniband/" + device;
    if (const auto version = read_small_file(about + "/fw_ver")) nic.firmware = *version;
    for (const std::string& number : names_in(about + "/ports")) {
      const auto port = static_cast<std::uint32_t>(std::min(leading_number(number), 255.0));
      const auto known = std::find_if(nic.ports.begin(), nic.ports.end(),
                                      [&](const RdmaPort& p) { return p.device == device && p.port == port; });
      if (known == nic.ports.end()) nic.ports.push_back({.device = device, .port = port});
    }
  }
}

using Environment = std::map<std::string, std::string>;
Environment environment_of(const std::string& folder) {
  Environment all;
  for (const std::string& entry : split(read_small_file(folder + "/environ").value_or(""), '\0')) {
    const auto equals = entry.find('=');
    if (equals != std::string::npos) all.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return all;
}

std::string value_of(const Environment& environment, const char* name) {
  const auto at = environment.find(name);
  return at == environment.end() ? std::string{} : at->second;
}

std::optional<std::uint32_t> number_of(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto at = environment.find(name);
    if (at == environment.end()) continue;
    if (const auto value = troupe::number_in<std::uint32_t>(at->second)) return value;
  }
  return std::nullopt;
}

/// "N0=12 N1=3 kernelpagesize_kB=4" in each line of numa_maps.
std::map<std::uint32_t, std::uint64_t> numa_bytes(const std::string& maps) {
  std::map<std::uint32_t, std::uint64_t> bytes;
  for (const std::string& line : split(maps, '\n')) {
    std::map<std::uint32_t, std::uint64_t> pages;
    std::uint64_t page_kib = 4;
    for (const std::string& word : split(line, ' ')) {
      const auto equals = word.find('=');
      if (equals == std::string::npos) continue;
      std::uint64_t value = 0;
      std::from_chars(word.data() + equals + 1, word.data() + word.size(), value);
      std::uint32_t node = 0;
      if (word.starts_with("kernelpagesize_kB="))
        page_kib = value;
      else if (word[0] == 'N' &&
               std::from_chars(word.data() + 1, word.data() + equals, node).ptr == word.data() + equals)
        pages[node] += value;
    }
    for (const auto& [node, count] : pages) bytes[node] += count * page_kib * 1024;
  }
  return bytes;
}

std::string gpu_of(const Machine& machine, const Environment& environment) {
  std::vector<std::string> buses;
  for (const Gpu& gpu : machine.gpus)
    if (machine.parts[gpu.part].pci) buses.push_back(machine.parts[gpu.part].pci->bus);
  const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
  const auto local = number_of(environment, {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"});
  std::optional<std::uint32_t> number = local;
  if (visible != environment.end()) {
    const std::vector<std::string> listed = split(visible->second, ',');
    // A single visible GPU belongs to the rank; of several, the rank takes the one with its local number.
    const std::size_t at = listed.size() == 1 ? 0 : local.value_or(~0u);
    number = at < listed.size() ? number_of({{"x", listed[at]}}, {"x"}) : std::nullopt;
  }
  return number && *number < buses.size() ? buses[*number] : std::string{};
}

}  // namespace

void add_pci_files(Machine& machine, const std::string& root) {
  for (Part& part : machine.parts) {
    if (!part.pci || part.pci->bus.empty()) continue;
    const std::string folder = root + "/sys/bus/pci/devices/" + part.pci->bus;
    const PciLink now = read_link(folder, "current");
    if (now.gigatransfers > 0 && now.lanes > 0) part.pci->now = now;
    part.pci->possible = read_link(folder, "max");
    part.pci->physical_function = link_name(folder + "/physfn");
    if (part.kind == PartKind::pci_bridge) part.pci->acs_redirect = acs_redirect(folder);
  }
  const std::string types = root + "/sys/kernel/iommu_groups";
  const std::vector<std::string> groups = names_in(types);
  if (!groups.empty()) {
    const auto type = read_small_file(types + '/' + groups.front() + "/type");
    if (type) machine.system.iommu_translates = *type != "identity";
  } else if (fs::exists(types)) {
    machine.system.iommu_translates = false;
  }
}

void add_nic_files(Machine& machine, const std::string& root, Blocking* watch) {
  for (topology::Nic& nic : machine.nics) {
    const auto& pci = machine.parts[nic.part].pci;
    if (pci && !pci->bus.empty()) read_nic(nic, pci->bus, root);
    for (Interface& interface : nic.interfaces) {
      const std::string folder = root + "/sys/class/net/" + interface.name;
      if (const auto megabits = number_in_file<std::uint64_t>(folder + "/speed"))
        interface.bits_per_second = *megabits * 1'000'000;
      if (const auto mtu = number_in_file<std::uint64_t>(folder + "/mtu"); mtu && *mtu <= 1 << 20)
        interface.mtu_bytes = static_cast<std::uint32_t>(*mtu);
      if (const auto state = read_small_file(folder + "/operstate"); state && *state != "unknown")
        interface.up = *state == "up";
      if (nic.driver.empty()) nic.driver = link_name(folder + "/device/driver");
    }
    for (RdmaPort& port : nic.ports) read_port(port, root);
  }
  if (watch == nullptr) return;
  std::map<std::string, Counters> before;
  for (const topology::Nic& nic : machine.nics)
    for (const RdmaPort& port : nic.ports) before[port_folder(root, port)] = read_counters(port_folder(root, port));
  if (before.empty()) return;
  std::this_thread::sleep_for(kWatch);
  for (topology::Nic& nic : machine.nics) {
    for (RdmaPort& port : nic.ports) {
      const Counters& then = before[port_folder(root, port)];
      for (const auto& [name, value] : read_counters(port_folder(root, port)))
        if (const auto at = then.find(name); at != then.end() && value > at->second)
          port.rising[name] = value - at->second;
    }
  }
}

void add_system_files(Machine& machine, const std::string& root) {
  SystemFacts& system = machine.system;
  const auto read = [&](const char* path) { return read_small_file(root + path); };
  system.kernel = read("/proc/sys/kernel/osrelease").value_or("");
  system.governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (const auto balancing = read("/proc/sys/kernel/numa_balancing")) system.numa_balancing = *balancing != "0";
  if (const auto modules = read("/proc/modules")) {
    const auto loaded = [&](const char* name) {
      return ("\n" + *modules).find(text("\n", name, ' ')) != std::string::npos;
    };
    system.peer_memory = loaded("nvidia_peermem") || loaded("nv_peer_mem") || loaded("amdgpu");
  }
  std::size_t nvidia = 0;
  for (const Gpu& gpu : machine.gpus) {
    if (gpu.vendor != "nvidia" || !machine.parts[gpu.part].pci) continue;
    const std::string& bus = machine.parts[gpu.part].pci->bus;
    std::string number = std::to_string(nvidia++);
    // "Device Minor: 	 3"
    const auto about = read_small_file(root + "/proc/driver/nvidia/gpus/" + bus + "/information").value_or("");
    const auto minor = about.find("Device Minor:");
    if (minor != std::string::npos)
      number = std::string{trimmed(std::string_view{about}.substr(minor + 13, about.find('\n', minor) - minor - 13))};
    if (!fs::exists(root + "/dev/nvidia" + number)) system.gpus_without_file.push_back(bus);
  }
}

namespace {

/// A process with a rank's number in its environment: a rank, or what started it there, as a shell or rtrun.
struct RankProcess {
  std::uint32_t rank = 0;
  std::string job;           // its name by the launcher, and where its ranks meet; equal for all ranks of a job
  bool knows_place = false;  // it knows where they meet
  std::int32_t parent = 0;
  std::uint64_t size_kilobytes = 0;
  CpuSet cpus;
  Environment environment;
};

std::optional<RankProcess> rank_process(const std::string& folder) {
  RankProcess process{.environment = environment_of(folder)};
  const auto value = [&](const char* name) { return value_of(process.environment, name); };
  const auto rank = number_of(process.environment, {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"});
  if (!rank) return {};
  process.rank = *rank;
  process.knows_place = !value("MASTER_ADDR").empty() || !value("MASTER_PORT").empty();
  process.job = text(value("PMIX_NAMESPACE"), ' ', value("SLURM_JOB_ID"), '.', value("SLURM_STEP_ID"), ' ',
                     value("MASTER_ADDR"), ':', value("MASTER_PORT"));
  for (const std::string& line : split(read_small_file(folder + "/status").value_or(""), '\n')) {
    const auto after = [&](std::string_view key) { return trimmed(std::string_view{line}.substr(key.size())); };
    if (line.starts_with("PPid:"))
      process.parent = static_cast<std::int32_t>(leading_number(std::string{after("PPid:")}));
    if (line.starts_with("Cpus_allowed_list:")) process.cpus = CpuSet::from_list(after("Cpus_allowed_list:"));
    if (line.starts_with("VmRSS:"))
      process.size_kilobytes = static_cast<std::uint64_t>(leading_number(std::string{after("VmRSS:")}));
  }
  return process;
}

/// By process id.
using RankProcesses = std::map<std::int32_t, RankProcess>;

/// In an allocation's shell, all programs have the shell's number and the launcher's name of the job. Those that start
/// ranks are no ranks: they do not know where ranks meet, and a process below them does.
void drop_starters(RankProcesses& processes) {
  std::vector<std::int32_t> starters;
  for (const auto& [pid, process] : processes) {
    if (!process.knows_place) continue;
    auto above = processes.find(process.parent);
    for (std::size_t left = processes.size(); above != processes.end() && left > 0; --left) {
      if (!above->second.knows_place) starters.push_back(above->first);
      above = processes.find(above->second.parent);
    }
  }
  for (const std::int32_t pid : starters) processes.erase(pid);
}

RankPlace place_of(const Machine& machine, const std::string& folder, std::int32_t pid, RankProcess process) {
  const auto value = [&](const char* name) { return value_of(process.environment, name); };
  RankPlace place{.rank = process.rank, .pid = pid, .cpus = std::move(process.cpus)};
  place.numa_bytes = numa_bytes(read_small_file(folder + "/numa_maps").value_or(""));
  place.gpu = gpu_of(machine, process.environment);
  place.nic = value("UCX_NET_DEVICES").find(',') == std::string::npos ? value("UCX_NET_DEVICES") : "";
  if (place.nic == "all") place.nic.clear();
  place.transports = value("UCX_TLS");
  return place;
}

}  // namespace

void add_ranks(Machine& machine, const std::string& root) {
  RankProcesses processes;
  for (const std::string& name : names_in(root + "/proc")) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (auto process = rank_process(root + "/proc/" + name))
      processes.emplace(static_cast<std::int32_t>(leading_number(name)), std::move(*process));
  }
  drop_starters(processes);
  // A rank and programs that it starts have the same environment; the largest process is the rank.
  std::map<std::pair<std::uint32_t, std::string>, RankProcesses::const_iterator> ranks;  // by number and job
  for (auto at = processes.begin(); at != processes.end(); ++at) {
    const auto [largest, is_new] = ranks.try_emplace({at->second.rank, at->second.job}, at);
    if (!is_new && at->second.size_kilobytes > largest->second->second.size_kilobytes) largest->second = at;
  }
  for (const auto& [key, at] : ranks)
    machine.ranks.push_back(place_of(machine, text(root, "/proc/", at->first), at->first, at->second));
}

}  // namespace troupe::detail
