#include "runtime/topology/differences.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"

// Every machine is first converted into named features. A feature is a sorted list of words, so order has no effect, or
// one number with a tolerance. Data that must not count as a difference never becomes a feature.
namespace troupe::topology {
namespace {

struct Feature {
  std::vector<std::string> words;
  double number = 0;   // of a memory size
  std::string device;  // the PCI bus id of the device that it belongs to, which other machines may not have
};
bool same(const Feature& a, const Feature& b) {
  if (a.number > 0 && b.number > 0) return std::abs(a.number - b.number) <= 0.01 * std::max(a.number, b.number);
  return a.words == b.words && (a.number > 0) == (b.number > 0);
}

/// Orders "core 2" before "core 10".
struct ByNumbers {
  bool operator()(const std::string& a, const std::string& b) const {
    const auto digit = [](const std::string& s, std::size_t i) {
      return i < s.size() && std::isdigit(static_cast<unsigned char>(s[i])) != 0;
    };
    for (std::size_t i = 0, j = 0;; ++i, ++j) {
      if (digit(a, i) && digit(b, j)) {
        std::size_t ends[2] = {i, j};
        while (digit(a, ends[0])) ++ends[0];
        while (digit(b, ends[1])) ++ends[1];
        const std::string_view one = std::string_view{a}.substr(i, ends[0] - i);
        const std::string_view two = std::string_view{b}.substr(j, ends[1] - j);
        if (one.size() != two.size()) return one.size() < two.size();
        if (one != two) return one < two;
        i = ends[0];
        j = ends[1];
      }
      if (i >= a.size() || j >= b.size()) return j < b.size();
      if (a[i] != b[j]) return a[i] < b[j];
    }
  }
};

using Features = std::map<std::string, Feature, ByNumbers>;

/// Infos of the machine that are compared; the others are names or serial numbers, or describe the program that wrote
/// the file.
constexpr std::array<std::string_view, 13> kMachineInfos{
    "Architecture",   "OSName",        "OSVersion",    "PlatformName",    "PlatformModel",
    "DMIProductName", "DMISysVendor",  "DMIBoardName", "DMIBoardVersion", "DMIBoardVendor",
    "DMIBIOSVersion", "DMIBIOSVendor", "DMIBIOSDate"};

/// "2 x A", "1 x B" for repeated words.
std::vector<std::string> counted(const std::vector<std::string>& words) {
  std::map<std::string, std::size_t> counts;
  for (const std::string& word : words) ++counts[word];
  std::vector<std::string> out;
  for (const auto& [word, count] : counts) out.push_back(text(count, " x ", word));
  return out;
}

/// By numbers, because a file's names for them depend on the database of the program that wrote it.
std::string describe(const Part& part) {
  std::array<char, 32> ids;
  std::snprintf(ids.data(), ids.size(), "[%04x:%04x]", part.pci->vendor, part.pci->device);
  const std::string_view vendor = vendor_name(part.pci->vendor);
  return text(vendor, vendor.empty() ? "" : " ", ids.data());
}

class Collector {
 public:
  explicit Collector(const Machine& machine) : machine_(machine), index_(machine) {
    for (const Part& part : machine.parts)
      if (part.kind == PartKind::package) package_numbers_.push_back(part.os_index);
    std::sort(package_numbers_.begin(), package_numbers_.end());
  }

  Features collect() {
    add_processors();
    add_memory();
    add_pci();
    for (const Gpu& gpu : machine_.gpus) add_gpu(gpu);
    for (const Nic& nic : machine_.nics) add_nic(nic);
    add_system();
    for (auto& [name, feature] : features_) std::sort(feature.words.begin(), feature.words.end(), ByNumbers{});
    return std::move(features_);
  }

 private:
  void word(const std::string& feature, std::string value) { features_[feature].words.push_back(std::move(value)); }
  /// Adds a feature of a device that other machines may not have; the list of devices shows whether they have it.
  void detail(const std::string& feature, PartIndex part, std::string value) {
    if (value.empty()) return;
    const auto& pci = machine_.parts[part].pci;
    features_[feature].device = pci ? pci->bus : label_of(index_, part);
    word(feature, std::move(value));
  }
  /// The system's number of a part, which does not depend on the file's order; without one, its place in the file.
  std::string number(PartIndex part) const {
    const std::int32_t os = machine_.parts[part].os_index;
    return os >= 0 ? text(os) : text(index_.number(part));
  }
  /// The place of a package in the order of the system's numbers; without these, in the file's order.
  std::size_t place_of(PartIndex package) const {
    const std::int32_t os = package == kNoPart ? 0 : machine_.parts[package].os_index;
    if (os < 0) return index_.number(package);
    return static_cast<std::size_t>(std::lower_bound(package_numbers_.begin(), package_numbers_.end(), os) -
                                    package_numbers_.begin());
  }
  /// Adds a list that may be empty: an empty list is a value too.
  void list(const std::string& feature) { features_[feature]; }

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
        // Their numbers show which cores of a chip are disabled.
        const PartIndex package = index_.package_of(i);
        word(text("cores of package ", place_of(package)), text("core ", part.os_index));
      }
      if (part.kind == PartKind::cache && part.cache->level >= 2) {
        caches[text("level ", part.cache->level, " caches")].push_back(
            text(bytes_text(part.bytes), " shared by ", index_.cpus(i).count(), " hardware threads"));
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
      if (part.kind == PartKind::numa && part.bytes > 0) {
        Feature& feature = features_["memory of NUMA " + number(i)];
        feature.number = static_cast<double>(part.bytes);
        feature.words.push_back(bytes_text(part.bytes));
      }
      if (!is_memory_module(part)) continue;
      const std::string* const vendor = find_info(part.infos, "Vendor");
      const std::string* const number = find_info(part.infos, "PartNumber");
      modules_.push_back(text(vendor != nullptr ? *vendor : "module", number != nullptr ? " " + *number : ""));
    }
    for (std::string& each : counted(modules_)) word("memory modules", std::move(each));
    for (const Distances& matrix : machine_.distances)
      if (matrix.name == "NUMALatency") add_distances(matrix);
  }

  void add_distances(const Distances& matrix) {
    const std::size_t n = matrix.parts.size();
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        word("distances between NUMA nodes",
             text(number(matrix.parts[i]), " to ", number(matrix.parts[j]), ": ", matrix.values[i * n + j]));
  }

  void add_pci() {
    std::map<std::string, std::vector<std::string>> by_kind;
    const auto has = [&](auto test) { return std::any_of(machine_.parts.begin(), machine_.parts.end(), test); };
    if (has([](const Part& part) { return part.pci.has_value(); }))
      for (const char* kind : {"GPUs", "NICs"}) list(kind), list(text("places of ", kind));
    // Only hwloc's files list all functions.
    if (has([](const Part& part) { return part.kind == PartKind::host_bridge; }))
      for (const char* what : {"disks", "other PCI functions", "places of other PCI functions"}) list(what);
    for (PartIndex i = 0; i < machine_.parts.size(); ++i) {
      const Part& part = machine_.parts[i];
      for (const OsDevice& os_device : part.os_devices) {
        if (os_device.kind != OsDevice::Kind::block) continue;
        const std::string* const model = find_info(os_device.infos, "Model");
        const std::string* const size = find_info(os_device.infos, "Size");
        by_kind["disks"].push_back(
            text(model != nullptr ? *model : "disk",
                 size != nullptr ? " of " + bytes_text(std::strtoull(size->c_str(), nullptr, 10) * 1024) : ""));
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
      detail(text("PCI link of ", part.pci->bus, ", ", describe(part)), i, text_of(part.pci->now));
      detail(text("possible PCI link of ", part.pci->bus, ", ", describe(part)), i, text_of(part.pci->possible));
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
    if (gpu.memory_bytes > 0) detail("memory of " + who, gpu.part, bytes_text(gpu.memory_bytes));
    detail("architecture of " + who, gpu.part, gpu.architecture);
    detail("firmware of " + who, gpu.part, gpu.firmware);
    if (gpu.mig) detail("MIG of " + who, gpu.part, *gpu.mig ? "on" : "off");
    if (gpu.state != GpuState::unknown)
      detail("state of " + who, gpu.part, gpu.state == GpuState::ok ? "works" : "does not work");
    if (gpu.most_clock_mhz) detail("highest clock of " + who, gpu.part, text(*gpu.most_clock_mhz, " MHz"));
    for (const AcceleratorLink& link : index_.links()) {
      if (link.from != gpu.part) continue;
      const std::string amount = link.lanes > 0 ? text(link.lanes - link.lanes_down, " lanes")
                                                : text(static_cast<double>(link.bytes_per_second) / 1e9, " GB/s");
      detail(text(name_of(link.kind), " of ", who), gpu.part, text(amount, " to ", link.to.empty() ? "?" : link.to));
    }
  }

  void add_nic(const Nic& nic) {
    const std::string who = name("NIC", nic.part);
    detail("driver of " + who, nic.part, nic.driver);
    detail("firmware of " + who, nic.part, nic.firmware);
    const auto add = [&](const char* what, std::uint64_t value, std::uint64_t unit, const char* name_of_unit) {
      if (value > 0)
        detail(text(what, " of ", who), nic.part,
               text(static_cast<double>(value) / static_cast<double>(unit), name_of_unit));
    };
    for (const Interface& interface : nic.interfaces) {
      add("rate", interface.bits_per_second, 1'000'000'000, " Gbit/s");
      add("MTU", interface.mtu_bytes, 1, " bytes");
      if (interface.up) detail("state of " + who, nic.part, *interface.up ? "up" : "down");
    }
    for (const RdmaPort& port : nic.ports) {
      add("RDMA rate", port.bits_per_second, 1'000'000'000, " Gbit/s");
      add("RDMA MTU", port.mtu_bytes, 1, " bytes");
      detail("link layer of " + who, nic.part, port.link_layer);
      if (port.active) detail("RDMA state of " + who, nic.part, *port.active ? "active" : "not active");
    }
  }

  void add_system() {
    for (const std::string_view name : kMachineInfos) {
      if (const std::string* const value = find_info(machine_.parts[kRoot].infos, name))
        word(std::string{name}, *value);
    }
    const SystemFacts& system = machine_.system;
    const std::string* const release = find_info(machine_.parts[kRoot].infos, "OSRelease");
    if (!system.kernel.empty() || release != nullptr) word("kernel", system.kernel.empty() ? *release : system.kernel);
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
    const auto bound = [&](const char* what, const std::optional<std::uint64_t>& value, bool bytes = true) {
      if (value) word(what, *value == ~std::uint64_t{0} ? "none" : bytes ? bytes_text(*value) : text(*value));
    };
    if (limits.cpu_quota)
      word("limit of processor time", *limits.cpu_quota == 0 ? "none" : text(*limits.cpu_quota, " processors"));
    bound("limit of memory", limits.memory_bytes);
    bound("limit of locked memory", limits.locked_bytes);
    bound("limit of open files", limits.open_files, false);
    if (!limits.allowed.empty()) word("allowed processors", limits.allowed.list());
  }

  const Machine& machine_;
  const Index index_;
  std::vector<std::int32_t> package_numbers_;  // sorted
  Features features_;
  std::vector<std::string> modules_;
};

/// The words that all machines which tell the feature have, counted with repetition.
std::vector<std::string> common_words(const std::vector<const Feature*>& all) {
  std::vector<std::string> common;
  bool first = true;
  for (const Feature* const feature : all) {
    if (feature == nullptr) continue;
    std::vector<std::string> both;
    std::set_intersection(common.begin(), common.end(), feature->words.begin(), feature->words.end(),
                          std::back_inserter(both), ByNumbers{});
    common = first ? feature->words : both;
    first = false;
  }
  return common;
}

/// The values in the report: each machine's words without the common ones.
std::vector<std::string> values_of(const std::vector<const Feature*>& all, const std::vector<std::string>& common) {
  std::vector<std::string> values;
  for (const Feature* const feature : all) {
    std::string& value = values.emplace_back();
    if (feature == nullptr) continue;
    std::vector<std::string> rest;
    std::set_difference(feature->words.begin(), feature->words.end(), common.begin(), common.end(),
                        std::back_inserter(rest), ByNumbers{});
    value = rest.empty() ? "none" : joined(rest);
  }
  return values;
}

/// Machines that differ from the value which more than half of the machines with a value have.
std::vector<std::size_t> odd_ones(const std::vector<const Feature*>& all) {
  std::size_t known = 0;
  std::vector<std::size_t> odd;
  for (const Feature* const feature : all) known += feature != nullptr;
  for (const Feature* const usual : all) {
    if (usual == nullptr) continue;
    odd.clear();
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i] != nullptr && !same(*usual, *all[i])) odd.push_back(i);
    if (2 * (known - odd.size()) > known) return odd;
  }
  return {};
}

bool differ(const std::vector<const Feature*>& all) {
  const Feature* first = nullptr;
  for (const Feature* const feature : all) {
    if (feature == nullptr) continue;
    if (first != nullptr && !same(*first, *feature)) return true;
    if (first == nullptr) first = feature;
  }
  return false;
}

/// Whether the values look equal to a reader, so that there is nothing to show.
bool look_alike(const std::vector<std::string>& values) {
  std::set<std::string> known{values.begin(), values.end()};
  known.erase("");
  return known.size() < 2;
}

/// Whether both tell the same machines apart.
bool split_alike(const Difference& a, const Difference& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if ((a.values[i] == a.values[j]) != (b.values[i] == b.values[j])) return false;
  return true;
}

/// The system's version is the kernel's date of building.
void drop_version_beside_kernel(std::vector<Difference>& differences) {
  const auto kernel = std::ranges::find(differences, "kernel", &Difference::what);
  const auto version = std::ranges::find(differences, "OSVersion", &Difference::what);
  if (kernel != differences.end() && version != differences.end() && split_alike(*kernel, *version))
    differences.erase(version);
}

}  // namespace

Comparison compare(std::span<const Machine> machines) {
  std::vector<Features> all;
  std::map<std::string, std::string, ByNumbers> names;  // by feature, the device that it belongs to
  for (const Machine& machine : machines) {
    all.push_back(Collector{machine}.collect());
    for (const auto& [name, feature] : all.back()) names.emplace(name, feature.device);
  }
  Comparison result{.missing = std::vector<std::vector<std::string>>(machines.size())};
  for (const auto& [name, device] : names) {
    std::vector<const Feature*> here;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto at = all[i].find(name);
      here.push_back(at == all[i].end() ? nullptr : &at->second);
      const bool has_it = device.empty() || std::any_of(machines[i].parts.begin(), machines[i].parts.end(),
                                                        [&](const Part& p) { return p.pci && p.pci->bus == device; });
      if (here.back() == nullptr && has_it) result.missing[i].push_back(name);
    }
    const std::vector<std::string> common = common_words(here);
    std::vector<std::string> values = values_of(here, common);
    if (differ(here) && !look_alike(values))
      result.differences.push_back(
          {.what = name, .values = std::move(values), .odd = odd_ones(here), .partial = !common.empty()});
  }
  drop_version_beside_kernel(result.differences);
  return result;
}

}  // namespace troupe::topology
