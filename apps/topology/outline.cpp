#include "apps/topology/outline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "runtime/topology/outliers.hpp"
#include "runtime/topology/paths.hpp"

namespace troupe::topology {
namespace {

/// "L1d", "L1i", "L3"
std::string cache_name(const CacheAttributes& cache) {
  using Holds = CacheAttributes::Holds;
  return text('L', cache.level, cache.holds == Holds::data ? "d" : cache.holds == Holds::instructions ? "i" : "");
}

/// Of a PCI function without a name in the system; empty: of no interest.
std::string_view storage_name(std::uint32_t class_code) {
  switch (class_code >> 8) {
    case 0x0100: return "SCSI controller";
    case 0x0101: return "IDE controller";
    case 0x0104: return "RAID controller";
    case 0x0106: return "SATA controller";
    case 0x0107: return "SAS controller";
    case 0x0108: return "NVMe controller";
    default: return {};
  }
}

std::string plural(std::size_t count, std::string_view one) { return text(count, ' ', one, count == 1 ? "" : "s"); }

class Outliner {
 public:
  Outliner(const Index& index, bool all) : index_(index), machine_(index.machine()), all_(all) {
    for (const SlowBridge& each : slow_bridges(index)) slow_.emplace(each.part, each);
  }

  Entry machine() {
    Entry entry{.title = machine_.host.empty() ? "machine" : machine_.host};
    const Counts counts = count(machine_);
    const auto& infos = machine_.parts[kRoot].infos;
    const std::string* product = find_info(infos, "DMIProductName");
    if (product == nullptr) product = find_info(infos, "PlatformModel");
    if (product != nullptr) entry.details.push_back(*product);
    const auto say = [&](std::size_t number, std::string_view what) {
      if (number > 0) entry.details.push_back(plural(number, what));
    };
    say(counts.packages, "package");
    say(counts.numa, "NUMA node");
    say(counts.cores, "core");
    say(counts.pus, "hardware thread");
    say(machine_.gpus.size(), "GPU");
    say(static_cast<std::size_t>(
            std::count_if(machine_.nics.begin(), machine_.nics.end(),
                          [&](const Nic& nic) { return !is_virtual(nic.part) && is_device(nic.part); })),
        "NIC");
    add_unknown_devices(entry);
    if (const std::uint64_t memory = memory_bytes(); memory > 0)
      entry.details.push_back(bytes_text(memory) + " of memory");
    if (!machine_.system.gpu_driver.empty()) entry.details.push_back("GPU driver " + machine_.system.gpu_driver);
    add_limits(entry);
    add_below(entry, kRoot, 0);
    return entry;
  }

 private:
  /// Devices of which the description tells too little to call them GPUs or NICs.
  void add_unknown_devices(Entry& entry) const {
    std::size_t classless = 0;
    std::size_t displays = 0;
    for (PartIndex i = 0; i < machine_.parts.size(); ++i) {
      const Part& part = machine_.parts[i];
      if (part.kind != PartKind::pci_function || index_.gpu_at(i) != nullptr || index_.nic_at(i) != nullptr) continue;
      classless += part.pci->class_code == 0 && part.subtype.empty();
      displays += part.pci->class_code >> 16 == 0x03 && part.pci->vendor == 0;
    }
    if (classless > 0)
      entry.details.push_back(plural(classless, "PCI device") + " of unknown kind (the description gives no class)");
    if (displays > 0)
      entry.details.push_back(plural(displays, "display") + " of unknown vendor, perhaps GPUs without a driver");
  }
  bool is_virtual(PartIndex part) const {
    return machine_.parts[part].pci && !machine_.parts[part].pci->physical_function.empty();
  }
  bool is_device(PartIndex part) const {
    return machine_.parts[part].pci || index_.nic_at(part) == nullptr || !index_.nic_at(part)->ports.empty();
  }

  std::uint64_t memory_bytes() const {
    std::uint64_t sum = 0;
    for (const Part& part : machine_.parts)
      if (part.kind == PartKind::numa && part.subtype != "GPUMemory") sum += part.bytes;
    return sum;
  }

  void add_limits(Entry& entry) const {
    const Limits& limits = machine_.limits;
    if (!limits.allowed.empty()) entry.details.push_back("allowed processors " + limits.allowed.list());
    if (limits.cpu_quota.value_or(0) > 0)
      entry.details.push_back(fmt::format("limited to {:g} processors' time", *limits.cpu_quota));
    const std::uint64_t memory = limits.memory_bytes.value_or(~std::uint64_t{0});
    if (memory < std::uint64_t{1} << 62) entry.details.push_back("limited to " + bytes_text(memory) + " of memory");
  }

  /// Parts that the outline omits: their children are shown at their place.
  bool is_passed(PartIndex part, std::uint32_t bridges) const {
    const Part& it = machine_.parts[part];
    if (all_) return false;
    switch (it.kind) {
      case PartKind::pci_bridge: return bridges % 2 == 0;  // root ports, and a switch's ports towards devices
      case PartKind::cache: return it.cache->level < 3;
      case PartKind::misc:
        return index_.nic_at(part) != nullptr || it.subtype == "MemoryModule";  // shown as a NIC, or in one entry
      case PartKind::group: return numa_or_package_below(part) == 0;
      case PartKind::die: return false;
      default: return false;
    }
  }
  std::size_t numa_or_package_below(PartIndex part) const {
    std::size_t found = 0;
    for (const PartIndex child : index_.children(part)) {
      const PartKind kind = machine_.parts[child].kind;
      found += kind == PartKind::numa || kind == PartKind::package || kind == PartKind::host_bridge;
    }
    return found;
  }

  void add_below(Entry& entry, PartIndex part, std::uint32_t bridges) {
    std::vector<PartIndex> cores;
    gather(entry, part, bridges, cores);
    if (!all_) add_modules(entry, part);
    if (cores.empty()) return;
    // Memory first, then processors, then devices.
    const auto at = std::find_if(entry.below.begin(), entry.below.end(),
                                 [](const Entry& e) { return e.kind != Entry::Kind::memory; });
    entry.below.insert(at, cores_entry(cores));
  }

  void gather(Entry& entry, PartIndex part, std::uint32_t bridges, std::vector<PartIndex>& cores) {
    add_interfaces(entry, part);
    for (const PartIndex child : index_.children(part)) {
      const Part& it = machine_.parts[child];
      const std::uint32_t passed = bridges + (it.kind == PartKind::pci_bridge ? 1 : 0);
      if (!all_ && (it.kind == PartKind::core || (it.kind == PartKind::pu && part_kind(part) != PartKind::core))) {
        cores.push_back(child);
      } else if (is_passed(child, bridges)) {
        gather(entry, child, passed, cores);
      } else if (all_ || !is_virtual(child)) {
        Entry below = entry_of(child);
        if (all_ || it.kind != PartKind::pu) add_below(below, child, passed);
        if (all_ || !is_dull(below)) entry.below.push_back(std::move(below));
      }
    }
  }
  PartKind part_kind(PartIndex part) const { return machine_.parts[part].kind; }

  /// One entry for all memory modules of a part, with the number of each model.
  void add_modules(Entry& entry, PartIndex part) const {
    std::map<std::string, std::size_t> models;
    std::size_t modules = 0;
    PartIndex first = part;
    for (const PartIndex child : index_.children(part)) {
      if (!is_memory_module(machine_.parts[child])) continue;
      if (modules++ == 0) first = child;
      const std::string* const vendor = find_info(machine_.parts[child].infos, "Vendor");
      const std::string* const number = find_info(machine_.parts[child].infos, "PartNumber");
      const std::string model =
          text(vendor != nullptr ? trimmed(*vendor) : "", ' ', number != nullptr ? trimmed(*number) : "");
      if (model != " ") ++models[std::string{trimmed(model)}];
    }
    if (modules == 0) return;
    Entry below{.kind = Entry::Kind::other, .part = first, .title = plural(modules, "memory module")};
    for (const auto& [model, count] : models) below.details.push_back(text(count, " x ", model));
    entry.below.push_back(std::move(below));
  }

  /// Bridges with nothing behind them, and functions without interest, such as timers.
  static bool is_dull(const Entry& entry) {
    if (entry.kind == Entry::Kind::host_bridge || entry.kind == Entry::Kind::pci_switch) return entry.below.empty();
    return entry.kind == Entry::Kind::other && entry.title.empty();
  }

  /// Devices without a PCI function of their own, such as a virtual machine's NIC.
  void add_interfaces(Entry& entry, PartIndex part) {
    if (machine_.parts[part].pci && part_kind(part) != PartKind::host_bridge) return;
    if (const Nic* const nic = index_.nic_at(part)) {
      for (const RdmaPort& port : nic->ports) {
        Entry below{.kind = Entry::Kind::nic, .part = part, .title = port.device};
        if (port.bits_per_second > 0)
          below.details.push_back(fmt::format("{:g} Gbit/s", static_cast<double>(port.bits_per_second) / 1e9));
        entry.below.push_back(std::move(below));
      }
      for (const Interface& interface : nic->interfaces) {
        Entry below{.kind = Entry::Kind::nic, .part = part, .title = interface.name};
        add_interface(below, interface);
        entry.below.push_back(std::move(below));
      }
    }
    for (const OsDevice& os_device : machine_.parts[part].os_devices) {
      if (os_device.kind == OsDevice::Kind::network || os_device.kind == OsDevice::Kind::openfabrics) continue;
      if (os_device.kind == OsDevice::Kind::block || all_) entry.below.push_back(os_device_entry(os_device, part));
    }
  }

  Entry os_device_entry(const OsDevice& os_device, PartIndex part) const {
    Entry entry{.kind = os_device.kind == OsDevice::Kind::block ? Entry::Kind::disk : Entry::Kind::other,
                .part = part,
                .title = os_device.name};
    if (const std::string* const model = find_info(os_device.infos, "Model")) entry.details.push_back(*model);
    if (const std::string* const kib = find_info(os_device.infos, "Size"))
      entry.details.push_back(bytes_text(std::strtoull(kib->c_str(), nullptr, 10) * 1024));
    if (!os_device.backend.empty() && os_device.backend != "Disk") entry.details.push_back(os_device.backend);
    return entry;
  }

  Entry cores_entry(const std::vector<PartIndex>& cores) const {
    Entry entry{.kind = Entry::Kind::cores, .part = cores.front()};
    entry.cores = static_cast<std::uint32_t>(cores.size());
    CpuSet cpus;
    for (const PartIndex core : cores) cpus.add(index_.cpus(core));
    const bool threads = part_kind(cores.front()) == PartKind::pu;
    const auto per_core = cpus.count() / std::max<std::size_t>(cores.size(), 1);
    entry.title = plural(cores.size(), threads ? "hardware thread" : "core");
    if (!threads && per_core > 1) entry.title += text(" x ", per_core, " threads");
    entry.details.push_back("processors " + cpus.list());
    for (PartIndex at = machine_.parts[cores.front()].parent; at != kNoPart; at = machine_.parts[at].parent) {
      const Part& part = machine_.parts[at];
      if (part.kind == PartKind::cache && part.cache->level < 3)
        entry.details.push_back(text(cache_name(*part.cache), ' ', bytes_text(part.bytes)));
    }
    return entry;
  }

  Entry entry_of(PartIndex index) const {
    const Part& part = machine_.parts[index];
    Entry entry{.part = index};
    using Kind = Entry::Kind;
    switch (part.kind) {
      case PartKind::package: {
        entry.kind = Kind::package;
        entry.title = label_of(index_, index);
        const std::string* model = find_info(part.infos, "CPUModel");
        if (model == nullptr) model = find_info(machine_.parts[kRoot].infos, "CPUModel");
        if (model == nullptr) model = find_info(part.infos, "CPUVendor");
        if (model != nullptr) entry.details.emplace_back(trimmed(*model));
        if (!part.cpus.empty()) entry.details.push_back("processors " + part.cpus.list());
        break;
      }
      case PartKind::numa:
        entry.kind = Kind::memory;
        entry.title = label_of(index_, index);
        if (part.bytes > 0) entry.details.push_back(bytes_text(part.bytes));
        if (!part.subtype.empty()) entry.details.push_back(part.subtype);
        break;
      case PartKind::cache:
      case PartKind::memory_cache:
        entry.kind = Kind::cache;
        entry.title =
            text(part.kind == PartKind::cache ? cache_name(*part.cache) : "memory cache", ' ', bytes_text(part.bytes));
        break;
      case PartKind::host_bridge:
        entry.kind = Kind::host_bridge;
        entry.title = text("host bridge ", part.pci->below);
        break;
      case PartKind::pci_bridge:
      case PartKind::pci_switch: describe_switch(entry, part); break;
      case PartKind::pci_function: describe_function(entry, part); break;
      default:
        entry.kind = part.kind == PartKind::misc ? Kind::other : Kind::group;
        entry.title = part.name.empty() ? label_of(index_, index) : part.name;
        if (!part.subtype.empty()) entry.details.push_back(part.subtype);
    }
    return entry;
  }

  void describe_switch(Entry& entry, const Part& part) const {
    entry.kind = Entry::Kind::pci_switch;
    entry.title = (is_switch(machine_, entry.part) ? "switch " : "port ") + part.pci->bus;
    std::size_t gpus = 0;
    std::size_t nics = 0;
    std::vector<PartIndex> open{entry.part};
    while (!open.empty()) {
      const PartIndex at = open.back();
      open.pop_back();
      gpus += index_.gpu_at(at) != nullptr;
      nics += index_.nic_at(at) != nullptr && !is_virtual(at);
      open.insert(open.end(), index_.children(at).begin(), index_.children(at).end());
    }
    if (gpus > 0 && nics > 0)
      entry.details.push_back(plural(gpus, "GPU") + " and " + plural(nics, "NIC") + " behind it");
    else if (gpus + nics > 1)
      entry.details.push_back(gpus > 0 ? plural(gpus, "GPU") + " behind it" : plural(nics, "NIC") + " behind it");
    if (const auto vendor = vendor_name(part.pci->vendor); !vendor.empty()) entry.details.emplace_back(vendor);
    add_link(entry, *part.pci);
    if (const auto at = slow_.find(entry.part); at != slow_.end())
      entry.troubles.push_back(text("slow PCI link: ", text_of(part.pci->now), ", ",
                                    at->second.below ? "behind it " : "others ", text_of(at->second.faster)));
  }

  void add_link(Entry& entry, const PciAttributes& pci) const {
    const std::string now = text_of(pci.now);
    if (now.empty()) return;
    const double rate = bytes_per_second(pci.now);
    entry.details.push_back(pci.now.gigatransfers > 0 && rate > 0 ? text("PCI ", now, " = ", rate_text(rate))
                                                                  : "PCI " + now);
    if (pci.now.lanes > 0 && pci.possible.lanes > pci.now.lanes)
      entry.troubles.push_back("PCI link could be " + text_of(pci.possible));
    else if (pci.now.gigatransfers > 0 && pci.possible.gigatransfers > pci.now.gigatransfers)
      entry.details.push_back("up to " + text_of(pci.possible));
    add_port_above(entry, pci);
  }

  /// A port that has no entry of its own and a slower link than the part directly behind it.
  void add_port_above(Entry& entry, const PciAttributes& pci) const {
    const PartIndex port = machine_.parts[entry.part].parent;
    if (all_ || part_kind(port) != PartKind::pci_bridge || is_switch(machine_, port)) return;
    const PciAttributes& above = *machine_.parts[port].pci;
    const double rate = bytes_per_second(above.now);
    if (rate <= 0 || rate >= bytes_per_second(pci.now)) return;
    entry.details.back() += text(", but ", rate_text(rate), " at the port ", above.bus, " above it");
    if (slow_.contains(port)) entry.troubles.emplace_back("slow PCI link");
  }

  void describe_function(Entry& entry, const Part& part) const {
    if (const Gpu* const gpu = index_.gpu_at(entry.part)) return describe_gpu(entry, part, *gpu);
    if (const Nic* const nic = index_.nic_at(entry.part)) return describe_nic(entry, part, *nic);
    entry.kind = Entry::Kind::other;
    const std::string* const device = find_info(part.infos, "PCIDevice");
    const std::string* const vendor = find_info(part.infos, "PCIVendor");
    for (const OsDevice& os_device : part.os_devices) {
      if (os_device.kind == OsDevice::Kind::block) entry.kind = Entry::Kind::disk;
      entry.title += (entry.title.empty() ? "" : ", ") + os_device.name;
      Entry about = os_device_entry(os_device, entry.part);
      entry.details.insert(entry.details.end(), about.details.begin(), about.details.end());
    }
    const bool nv_switch = part.pci->class_code == kNvSwitchClass && part.pci->vendor == 0x10de;
    if (entry.title.empty() && (nv_switch || !part.subtype.empty()))
      entry.title = part.subtype.empty() ? "NVSwitch" : part.subtype;
    if (entry.title.empty()) entry.title = storage_name(part.pci->class_code);
    if (entry.title.empty() && (all_ || part.pci->class_code == 0 || part.pci->class_code >> 16 == 3))
      entry.title = part.pci->class_code >> 16 == 3 ? "display" : "PCI";
    if (!entry.title.empty()) entry.details.insert(entry.details.begin(), part.pci->bus);
    if (vendor != nullptr || device != nullptr)
      entry.details.push_back(text(vendor != nullptr ? *vendor : "", vendor != nullptr && device != nullptr ? " " : "",
                                   device != nullptr ? *device : ""));
    else if (part.pci->vendor != 0)
      entry.details.push_back(
          fmt::format("{:04x}:{:04x}, class {:04x}", part.pci->vendor, part.pci->device, part.pci->class_code >> 8));
    add_link(entry, *part.pci);
  }

  void describe_gpu(Entry& entry, const Part& part, const Gpu& gpu) const {
    entry.kind = Entry::Kind::gpu;
    entry.title = label_of(index_, entry.part);
    if (!gpu.model.empty()) entry.details.push_back(gpu.model);
    entry.details.push_back(part.pci->bus);
    if (gpu.memory_bytes > 0) entry.details.push_back(bytes_text(gpu.memory_bytes));
    if (!gpu.architecture.empty()) entry.details.push_back(gpu.architecture);
    add_link(entry, *part.pci);
    add_accelerator_links(entry);
    if (gpu.mig.value_or(false)) entry.details.emplace_back("divided into instances (MIG)");
    if (gpu.state == GpuState::lost) entry.troubles.emplace_back("does not answer");
    if (gpu.state == GpuState::no_permission) entry.troubles.emplace_back("may not be used");
    if (gpu.uncorrected_errors.value_or(0) > 0)
      entry.troubles.push_back(text(*gpu.uncorrected_errors, " memory errors"));
    std::vector<std::string> names;
    for (const OsDevice& os_device : part.os_devices) names.push_back(os_device.name);
    if (!names.empty()) entry.details.push_back("also " + joined(names));
  }

  void add_accelerator_links(Entry& entry) const {
    std::uint32_t lanes = 0;
    std::uint32_t down = 0;
    std::uint64_t rate = 0;
    std::size_t gpus = 0;
    std::size_t switches = 0;
    std::size_t others = 0;
    bool processor = false;
    bool unknown = false;
    AcceleratorLink::Kind kind{};
    for (const AcceleratorLink& link : index_.links()) {
      if (link.from != entry.part) continue;
      kind = link.kind;
      lanes += link.lanes;
      down += link.lanes_down;
      rate += link.bytes_per_second;
      const PartIndex to = index_.at_bus(link.to);
      if (!end_is_known(index_, link))
        unknown = true;
      else if (link.to_class == kProcessorClass)
        processor = true;
      else
        (to != kNoPart && index_.gpu_at(to) != nullptr ? gpus
         : link.to_class == kNvSwitchClass             ? switches
                                                       : others) += 1;
    }
    if (gpus + switches + others == 0 && !processor && !unknown) return;
    std::string words = text(name_of(kind), ": ");
    if (lanes > 0)
      words += plural(lanes - down, "lane");
    else
      words += rate_text(static_cast<double>(rate));
    std::vector<std::string> ends;
    if (gpus > 0) ends.push_back(plural(gpus, "GPU"));
    if (switches > 0) ends.push_back(text(switches, switches == 1 ? " switch" : " switches"));
    if (others > 0) ends.push_back(plural(others, "other end"));
    if (processor) ends.emplace_back("the processor");
    if (unknown) ends.emplace_back("an end that this description does not tell");
    words += " to " + joined(ends, " and ");
    entry.details.push_back(words);
    if (down > 0) entry.troubles.push_back(text(down, " of ", lanes, ' ', name_of(kind), " lanes down"));
  }

  static void add_interface(Entry& entry, const Interface& interface) {
    if (interface.bits_per_second > 0)
      entry.details.push_back(fmt::format("{:g} Gbit/s", static_cast<double>(interface.bits_per_second) / 1e9));
    if (interface.mtu_bytes > 0) entry.details.push_back(text("MTU ", interface.mtu_bytes));
    if (interface.up && !*interface.up) entry.details.emplace_back("down");
  }

  void describe_nic(Entry& entry, const Part& part, const Nic& nic) const {
    entry.kind = Entry::Kind::nic;
    std::vector<std::string> names;
    for (const RdmaPort& port : nic.ports)
      if (names.empty() || names.back() != port.device) names.push_back(port.device);
    for (const Interface& interface : nic.interfaces) names.push_back(interface.name);
    entry.title = names.empty() ? "NIC" : joined(names);
    entry.details.push_back(part.pci->bus);
    const std::string* const device = find_info(part.infos, "PCIDevice");
    if (const auto vendor = vendor_name(part.pci->vendor); !vendor.empty() || device != nullptr)
      entry.details.push_back(
          text(vendor, !vendor.empty() && device != nullptr ? " " : "", device != nullptr ? *device : ""));
    for (const RdmaPort& port : nic.ports) {
      if (port.bits_per_second > 0)
        entry.details.push_back(fmt::format("{}port {}: {:g} Gbit/s",
                                            port.link_layer.empty() ? "" : port.link_layer + " ", port.port,
                                            static_cast<double>(port.bits_per_second) / 1e9));
      if (port.active && !*port.active) entry.details.push_back(text("port ", port.port, " not active"));
    }
    for (const Interface& interface : nic.interfaces) add_interface(entry, interface);
    add_link(entry, *part.pci);
    std::size_t functions = 0;
    for (const Nic& other : machine_.nics)
      functions += is_virtual(other.part) && machine_.parts[other.part].pci->physical_function == part.pci->bus;
    if (functions > 0) entry.details.push_back("with " + plural(functions, "virtual function"));
  }

  const Index& index_;
  const Machine& machine_;
  const bool all_;
  std::map<PartIndex, SlowBridge> slow_;
};

}  // namespace

std::string rate_text(double bytes_per_second) {
  if (bytes_per_second <= 0) return {};
  return fmt::format("{:.3g} GB/s", bytes_per_second / 1e9);
}

Entry outline(const Index& index, bool all) { return Outliner{index, all}.machine(); }

}  // namespace troupe::topology
