#include "runtime/topology/differences.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"

// Every machine is turned into named features first. A feature is a sorted list of words, so order cannot matter, or
// one number with a tolerance. Whatever must not count as a difference is never made a feature.
namespace troupe::topology {
namespace {

struct Feature {
  std::vector<std::string> words;
  double number = 0;       // of a memory size
  bool everywhere = true;  // a machine that lacks it differs; false: its absence is told by another feature
};
bool same(const Feature& a, const Feature& b) {
  if (a.number > 0 && b.number > 0) return std::abs(a.number - b.number) <= 0.01 * std::max(a.number, b.number);
  return a.words == b.words && (a.number > 0) == (b.number > 0);
}

using Features = std::map<std::string, Feature>;

/// Of the machine's infos; the others are names, serial numbers, or tell of the program that wrote the file.
constexpr std::array<std::string_view, 14> kMachineInfos{
    "Architecture",   "OSName",         "OSRelease",     "OSVersion",    "PlatformName",
    "PlatformModel",  "DMIProductName", "DMISysVendor",  "DMIBoardName", "DMIBoardVersion",
    "DMIBoardVendor", "DMIBIOSVersion", "DMIBIOSVendor", "DMIBIOSDate"};

/// "2 x A", "1 x B" of words that repeat.
std::vector<std::string> counted(const std::vector<std::string>& words) {
  std::map<std::string, std::size_t> counts;
  for (const std::string& word : words) ++counts[word];
  std::vector<std::string> out;
  for (const auto& [word, count] : counts) out.push_back(text(count, " x ", word));
  return out;
}

/// By numbers: whether a file has names for them depends on the database of the program that wrote it.
std::string describe(const Part& part) {
  std::array<char, 32> ids;
  std::snprintf(ids.data(), ids.size(), "[%04x:%04x]", part.pci->vendor, part.pci->device);
  const std::string_view vendor = vendor_name(part.pci->vendor);
  return text(vendor, vendor.empty() ? "" : " ", ids.data());
}

class Collector {
 public:
  explicit Collector(const Machine& machine) : machine_(machine), index_(machine) {}

  Features collect() {
    add_processors();
    add_memory();
    add_pci();
    for (const Gpu& gpu : machine_.gpus) add_gpu(gpu);
    for (const Nic& nic : machine_.nics) add_nic(nic);
    add_system();
    for (auto& [name, feature] : features_) std::sort(feature.words.begin(), feature.words.end());
    return std::move(features_);
  }

 private:
  void word(const std::string& feature, std::string value) { features_[feature].words.push_back(std::move(value)); }
  /// Of a device that other machines may not have: that is told by the list of devices.
  void detail(const std::string& feature, std::string value) {
    if (value.empty()) return;
    features_[feature].everywhere = false;
    word(feature, std::move(value));
  }

  void add_processors() {
    std::vector<std::string> packages;
    std::vector<std::string> cores;
    std::map<std::string, std::vector<std::string>> caches;
    for (PartIndex i = 0; i < machine_.parts.size(); ++i) {
      const Part& part = machine_.parts[i];
      if (part.kind == PartKind::package) {
        const std::string* model = find_info(part.infos, "CPUModel");
        if (model == nullptr) model = find_info(machine_.parts[kRoot].infos, "CPUModel");
        packages.push_back(model != nullptr ? *model : "package");
      }
      if (part.kind == PartKind::core) {
        cores.push_back(text("core with ", index_.children(i).size(), " hardware threads"));
        // Numbers tell which cores of a chip are switched off.
        const PartIndex package = index_.package_of(i);
        word(text("cores of package ", package == kNoPart ? 0 : index_.number(package)), text("core ", part.os_index));
      }
      if (part.kind == PartKind::cache && part.cache->level >= 2) {
        caches[text("level ", part.cache->level, " caches")].push_back(
            text(part.bytes >> 10, " KiB shared by ", index_.cpus(i).count(), " hardware threads"));
      }
    }
    for (std::string& each : counted(packages)) word("packages", std::move(each));
    for (std::string& each : counted(cores)) word("cores", std::move(each));
    for (const auto& [level, all] : caches)
      for (std::string& each : counted(all)) word(level, std::move(each));
    for (const CpuKind& kind : machine_.cpu_kinds)
      word("kinds of processors", text("efficiency ", kind.efficiency, ": ", kind.cpus.list()));
  }

  void add_memory() {
    for (PartIndex i = 0; i < machine_.parts.size(); ++i) {
      const Part& part = machine_.parts[i];
      if (part.kind == PartKind::numa) {
        Feature& feature =
            features_[text("memory of NUMA ", part.os_index >= 0 ? part.os_index : static_cast<int>(index_.number(i)))];
        feature.number = static_cast<double>(std::max<std::uint64_t>(part.bytes, 1));
        feature.words.push_back(text(static_cast<double>(part.bytes) / 1e9, " GB"));
      }
      if (part.kind != PartKind::misc || part.subtype != "MemoryModule") continue;
      const std::string* const vendor = find_info(part.infos, "Vendor");
      const std::string* const number = find_info(part.infos, "PartNumber");
      modules_.push_back(text(vendor != nullptr ? *vendor : "module", number != nullptr ? " " + *number : ""));
    }
    for (std::string& each : counted(modules_)) word("memory modules", std::move(each));
    for (const Distances& matrix : machine_.distances)
      if (matrix.name == "NUMALatency") word("distances between NUMA nodes", joined(matrix.values, " "));
  }

  void add_pci() {
    std::map<std::string, std::vector<std::string>> by_kind;
    for (PartIndex i = 0; i < machine_.parts.size(); ++i) {
      const Part& part = machine_.parts[i];
      for (const Face& face : part.faces) {
        if (face.kind != Face::Kind::block) continue;
        const std::string* const model = find_info(face.infos, "Model");
        const std::string* const size = find_info(face.infos, "Size");
        by_kind["disks"].push_back(
            text(model != nullptr ? *model : "disk", size != nullptr ? " of " + *size + " KiB" : ""));
      }
      if (part.kind != PartKind::pci_function && part.kind != PartKind::pci_switch) continue;
      const bool gpu = index_.gpu_at(i) != nullptr;
      const bool nic = index_.nic_at(i) != nullptr;
      const std::string kind = gpu                                 ? "GPUs"
                               : nic                               ? "NICs"
                               : part.kind == PartKind::pci_switch ? "PCI switches"
                                                                   : "other PCI functions";
      by_kind[kind].push_back(describe(part));
      word("places of " + kind, part.pci->bus);
      detail(text("PCI link of ", part.pci->bus, ", ", describe(part)), text_of(part.pci->now));
      detail(text("possible PCI link of ", part.pci->bus, ", ", describe(part)), text_of(part.pci->possible));
    }
    for (const auto& [kind, all] : by_kind)
      for (std::string& each : counted(all)) word(kind, std::move(each));
  }

  std::string name(const char* what, PartIndex part) const {
    const auto& pci = machine_.parts[part].pci;
    return text(what, ' ', pci && !pci->bus.empty() ? pci->bus : label_of(index_, part));
  }

  void add_gpu(const Gpu& gpu) {
    const std::string who = name("GPU", gpu.part);
    if (gpu.memory_bytes > 0) detail("memory of " + who, text(gpu.memory_bytes >> 20, " MiB"));
    detail("architecture of " + who, gpu.architecture);
    detail("firmware of " + who, gpu.firmware);
    if (gpu.mig) detail("MIG of " + who, *gpu.mig ? "on" : "off");
    if (gpu.state != GpuState::unknown)
      detail("state of " + who, gpu.state == GpuState::ok ? "works" : "does not work");
    if (gpu.most_clock_mhz) detail("highest clock of " + who, text(*gpu.most_clock_mhz, " MHz"));
    for (const AcceleratorLink& link : index_.links()) {
      if (link.from != gpu.part) continue;
      const std::string amount = link.lanes > 0 ? text(link.lanes - link.lanes_down, " lanes")
                                                : text(static_cast<double>(link.bytes_per_second) / 1e9, " GB/s");
      detail(text(name_of(link.kind), " of ", who), text(amount, " to ", link.to.empty() ? "?" : link.to));
    }
  }

  void add_nic(const Nic& nic) {
    const std::string who = name("NIC", nic.part);
    detail("driver of " + who, nic.driver);
    detail("firmware of " + who, nic.firmware);
    const auto add = [&](const char* what, std::uint64_t value, std::uint64_t unit, const char* name_of_unit) {
      if (value > 0)
        detail(text(what, " of ", who), text(static_cast<double>(value) / static_cast<double>(unit), name_of_unit));
    };
    for (const Interface& interface : nic.interfaces) {
      add("rate", interface.bits_per_second, 1'000'000'000, " Gbit/s");
      add("MTU", interface.mtu_bytes, 1, " bytes");
      if (interface.up) detail("state of " + who, *interface.up ? "up" : "down");
    }
    for (const RdmaPort& port : nic.ports) {
      add("RDMA rate", port.bits_per_second, 1'000'000'000, " Gbit/s");
      add("RDMA MTU", port.mtu_bytes, 1, " bytes");
      detail("link layer of " + who, port.link_layer);
      if (port.active) detail("RDMA state of " + who, *port.active ? "active" : "not active");
    }
  }

  void add_system() {
    for (const std::string_view name : kMachineInfos) {
      if (const std::string* const value = find_info(machine_.parts[kRoot].infos, name))
        word(std::string{name}, *value);
    }
    const SystemFacts& system = machine_.system;
    if (!system.kernel.empty()) word("kernel", system.kernel);
    if (!system.gpu_driver.empty()) word("GPU driver", system.gpu_driver);
    if (system.governor) word("frequency governor", *system.governor);
    const auto yes_no = [&](const char* what, const std::optional<bool>& value) {
      if (value) word(what, *value ? "yes" : "no");
    };
    yes_no("NUMA balancing", system.numa_balancing);
    yes_no("synchronized clock", system.clock_synchronized);
    yes_no("module for GPU memory and NICs", system.peer_memory);
    yes_no("IOMMU translation", system.iommu_translates);
    const Limits& limits = machine_.limits;
    const auto bound = [&](const char* what, const std::optional<std::uint64_t>& value) {
      if (value) word(what, *value == ~std::uint64_t{0} ? "none" : text(*value));
    };
    if (limits.cpu_quota)
      word("limit of processor time", *limits.cpu_quota == 0 ? "none" : text(*limits.cpu_quota, " processors"));
    bound("limit of memory", limits.memory_bytes);
    bound("limit of locked memory", limits.locked_bytes);
    bound("limit of open files", limits.open_files);
    if (!limits.allowed.empty()) word("allowed processors", limits.allowed.list());
  }

  const Machine& machine_;
  const Index index_;
  Features features_;
  std::vector<std::string> modules_;
};

/// What stands for a machine in the report: its words without those that every machine has.
std::vector<std::string> values_of(const std::vector<const Feature*>& all) {
  std::set<std::string> common;
  bool first = true;
  for (const Feature* const feature : all) {
    const std::set<std::string> own = feature == nullptr
                                          ? std::set<std::string>{}
                                          : std::set<std::string>{feature->words.begin(), feature->words.end()};
    std::set<std::string> both;
    std::set_intersection(common.begin(), common.end(), own.begin(), own.end(), std::inserter(both, both.end()));
    common = first ? own : both;
    first = false;
  }
  std::vector<std::string> values;
  for (const Feature* const feature : all) {
    std::vector<std::string> rest;
    if (feature != nullptr)
      for (const std::string& each : feature->words)
        if (!common.contains(each)) rest.push_back(each);
    values.push_back(rest.empty() ? "none" : joined(rest));
  }
  return values;
}

std::vector<std::size_t> odd_ones(const std::vector<const Feature*>& all, bool absent_counts) {
  const auto equal = [&](std::size_t a, std::size_t b) {
    if (all[a] == nullptr || all[b] == nullptr) return all[a] == all[b] || !absent_counts;
    return same(*all[a], *all[b]);
  };
  std::size_t best = 0;
  std::size_t most = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == nullptr && !absent_counts) continue;
    std::size_t votes = 0;
    for (std::size_t j = 0; j < all.size(); ++j) votes += equal(i, j);
    if (votes > most) most = votes, best = i;
  }
  std::vector<std::size_t> odd;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!equal(best, i)) odd.push_back(i);
  return odd;
}

}  // namespace

std::vector<Difference> differences(std::span<const Machine> machines) {
  std::vector<Features> all;
  std::map<std::string, bool> names;  // whether a machine that lacks it differs
  for (const Machine& machine : machines) {
    all.push_back(Collector{machine}.collect());
    for (const auto& [name, feature] : all.back()) names.emplace(name, feature.everywhere);
  }
  std::vector<Difference> found;
  for (const auto& [name, absent_counts] : names) {
    std::vector<const Feature*> here;
    for (const Features& features : all) {
      const auto at = features.find(name);
      here.push_back(at == features.end() ? nullptr : &at->second);
    }
    std::vector<std::size_t> odd = odd_ones(here, absent_counts);
    if (!odd.empty()) found.push_back({.what = name, .values = values_of(here), .odd = std::move(odd)});
  }
  return found;
}

}  // namespace troupe::topology
