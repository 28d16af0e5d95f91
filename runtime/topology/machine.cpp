#include "runtime/topology/machine.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"

namespace troupe::topology {
namespace {

constexpr std::array<std::string_view, 14> kPartNames{
    "machine", "package", "die",         "group",      "numa",       "memory_cache", "cache",
    "core",    "pu",      "host_bridge", "pci_bridge", "pci_switch", "pci_function", "misc"};

struct Vendor {
  std::uint16_t id;
  std::string_view name;
};
constexpr std::array<Vendor, 12> kVendors{{{0x10de, "NVIDIA"},
                                           {0x1002, "AMD"},
                                           {0x1022, "AMD"},
                                           {0x8086, "Intel"},
                                           {0x15b3, "Mellanox"},
                                           {0x14e4, "Broadcom"},
                                           {0x1000, "Broadcom"},
                                           {0x10b5, "PLX"},
                                           {0x1d0f, "Amazon"},
                                           {0x1414, "Microsoft"},
                                           {0x1af4, "virtio"},
                                           {0x144d, "Samsung"}}};

/// Bytes of data in one transfer: 8 of 10 bits are data at 2.5 and 5 GT/s, 128 of 130 at higher rates.
double bytes_per_transfer(double gigatransfers) { return gigatransfers <= 5.0 ? 0.8 / 8 : 128.0 / 130 / 8; }

std::string short_number(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return text.data();
}

bool is_memory(const Part& part) { return part.kind == PartKind::numa && part.subtype != "GPUMemory"; }

/// Whether a face of this backend describes a GPU.
bool names_a_gpu(const OsDevice& os_device) {
  if (os_device.kind != OsDevice::Kind::gpu && os_device.kind != OsDevice::Kind::coprocessor) return false;
  const std::string* const kind = find_info(os_device.infos, "CoProcType");
  const std::string& backend = os_device.backend.empty() && kind != nullptr ? *kind : os_device.backend;
  if (backend == "OpenCL") {
    const std::string* const type = find_info(os_device.infos, "OpenCLDeviceType");
    return type == nullptr || *type == "GPU";
  }
  return backend == "CUDA" || backend == "NVML" || backend == "RSMI" || backend == "LevelZero" ||
         os_device.name.starts_with("cuda") || os_device.name.starts_with("nvml") || os_device.name.starts_with("rsmi");
}

std::string_view vendor_of(const Part& part, const std::string* said) {
  const std::string words = said != nullptr ? lower_case(*said) : std::string{};
  if (words.find("nvidia") != std::string::npos || (part.pci && part.pci->vendor == 0x10de)) return "nvidia";
  if (words.find("amd") != std::string::npos || words.find("advanced micro") != std::string::npos ||
      (part.pci && part.pci->vendor == 0x1002))
    return "amd";
  if (words.find("intel") != std::string::npos || (part.pci && part.pci->vendor == 0x8086)) return "intel";
  return {};
}

std::uint64_t number_of(const std::string& text) {
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || value > (~std::uint64_t{0} >> 8) / 10) break;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

void fill_from(Gpu& gpu, const OsDevice& os_device) {
  const auto take = [&](std::string& to, std::string_view name) {
    if (const std::string* const value = find_info(os_device.infos, name); value != nullptr && to.empty()) to = *value;
  };
  take(gpu.model, "GPUModel");
  take(gpu.uuid, "NVIDIAUUID");
  take(gpu.uuid, "AMDUUID");
  take(gpu.serial, "NVIDIASerial");
  take(gpu.serial, "AMDSerial");
  for (const char* name : {"CUDAGlobalMemorySize", "OpenCLGlobalMemorySize"}) {  // in KiB
    if (const std::string* const kib = find_info(os_device.infos, name); kib != nullptr && gpu.memory_bytes == 0)
      gpu.memory_bytes = number_of(*kib) * 1024;
  }
}

std::optional<Gpu> gpu_from(const Part& part, PartIndex index) {
  const bool by_face = std::any_of(part.os_devices.begin(), part.os_devices.end(), names_a_gpu);
  const bool by_class = part.kind == PartKind::pci_function && is_gpu(*part.pci);
  if (!by_face && !by_class) return std::nullopt;
  Gpu gpu;
  gpu.part = index;
  const std::string* said = find_info(part.infos, "PCIVendor");
  for (const OsDevice& os_device : part.os_devices) {
    if (!names_a_gpu(os_device)) continue;
    fill_from(gpu, os_device);
    if (said == nullptr) said = find_info(os_device.infos, "GPUVendor");
  }
  gpu.vendor = vendor_of(part, said);
  if (gpu.model.empty())
    if (const std::string* const name = find_info(part.infos, "PCIDevice")) gpu.model = *name;
  return gpu;
}

/// hwloc's "Port1State" and so on, for each port.
void add_ports(Nic& nic, const OsDevice& os_device) {
  for (std::uint32_t number = 1; number <= 4; ++number) {
    const std::string* const state = find_info(os_device.infos, text("Port", number, "State"));
    if (state == nullptr && number > 1) break;
    RdmaPort port;
    port.device = os_device.name;
    port.port = number;
    if (state != nullptr) port.active = state->starts_with("4");
    if (const std::string* const guid = find_info(os_device.infos, "NodeGUID")) port.guid = *guid;
    nic.ports.push_back(std::move(port));
  }
}

std::optional<Nic> nic_from(const Part& part, PartIndex index) {
  const auto is_network = [](const OsDevice& f) {
    return f.kind == OsDevice::Kind::network || f.kind == OsDevice::Kind::openfabrics;
  };
  const bool by_class = part.kind == PartKind::pci_function && is_nic_class(*part.pci);
  if (!by_class && !std::any_of(part.os_devices.begin(), part.os_devices.end(), is_network)) return std::nullopt;
  Nic nic;
  nic.part = index;
  for (const OsDevice& os_device : part.os_devices) {
    if (os_device.kind == OsDevice::Kind::openfabrics) add_ports(nic, os_device);
    if (os_device.kind != OsDevice::Kind::network) continue;
    Interface interface { .name = os_device.name };
    if (const std::string* const address = find_info(os_device.infos, "Address")) interface.address = *address;
    nic.interfaces.push_back(std::move(interface));
  }
  return nic;
}

}  // namespace

std::string_view name_of(PartKind kind) noexcept { return kPartNames[static_cast<std::size_t>(kind)]; }

std::string_view name_of(AcceleratorLink::Kind kind) noexcept {
  switch (kind) {
    case AcceleratorLink::Kind::nvlink: return "NVLink";
    case AcceleratorLink::Kind::xgmi: return "xGMI";
    case AcceleratorLink::Kind::c2c: return "C2C";
  }
  return "";
}

bool is_memory_module(const Part& part) noexcept {
  if (part.kind != PartKind::misc || part.subtype != "MemoryModule") return false;
  const std::string* const number = find_info(part.infos, "PartNumber");
  return number == nullptr || number->find("NO DIMM") == std::string::npos;
}

std::string bytes_text(std::uint64_t bytes) {
  // Sizes of caches are powers of two; memory is usually given in powers of ten.
  if (bytes < std::uint64_t{1} << 20) return text(bytes >> 10, " KiB");
  if (bytes < std::uint64_t{1} << 29) return short_number(static_cast<double>(bytes) / (1 << 20)) + " MiB";
  if (bytes < 999'500'000'000) return short_number(static_cast<double>(bytes) / 1e9) + " GB";
  return short_number(static_cast<double>(bytes) / 1e12) + " TB";
}

const std::string* find_info(const std::vector<Info>& infos, std::string_view name) noexcept {
  const auto at = std::find_if(infos.begin(), infos.end(), [&](const Info& info) { return info.name == name; });
  return at == infos.end() ? nullptr : &at->value;
}

double bytes_per_second(const PciLink& link) noexcept {
  if (link.gigatransfers > 0 && link.lanes > 0)
    return link.gigatransfers * 1e9 * bytes_per_transfer(link.gigatransfers) * link.lanes;
  return link.gigabytes * 1e9;
}

std::string text_of(const PciLink& link) {
  if (link.gigatransfers > 0 && link.lanes > 0)
    return short_number(link.gigatransfers) + " GT/s x" + std::to_string(link.lanes);
  if (link.gigatransfers > 0) return short_number(link.gigatransfers) + " GT/s";
  if (link.gigabytes > 0) return short_number(link.gigabytes) + " GB/s";
  return {};
}

std::string_view vendor_name(std::uint16_t vendor) noexcept {
  const auto at = std::find_if(kVendors.begin(), kVendors.end(), [&](const Vendor& v) { return v.id == vendor; });
  return at == kVendors.end() ? std::string_view{} : at->name;
}

bool is_gpu_class(const PciAttributes& pci) noexcept {
  const std::uint32_t base = pci.class_code >> 16;
  if (pci.vendor == 0) return pci.class_code >> 8 == 0x0302 || pci.class_code >> 8 == 0x0380 || base == 0x12;
  return (base == 0x03 || base == 0x12) && (pci.vendor == 0x10de || pci.vendor == 0x1002);
}
bool is_gpu(const PciAttributes& pci) noexcept {
  if (pci.vendor == 0x8086) {
    const bool display = pci.class_code >> 8 == 0x0302 || pci.class_code >> 8 == 0x0380;
    return display && ((pci.device >= 0x0bd0 && pci.device <= 0x0bdb) ||  // Max
                       (pci.device >= 0x56c0 && pci.device <= 0x56c2));   // Flex
  }
  // Rage XL, RV100 and ES1000, the display chips on servers' boards.
  const bool on_board = pci.vendor == 0x1002 && (pci.device == 0x4752 || pci.device == 0x5159 || pci.device == 0x515e);
  return is_gpu_class(pci) && !on_board;
}
bool is_nic_class(const PciAttributes& pci) noexcept { return pci.class_code >> 16 == 0x02; }

Counts count(const Machine& machine) {
  Counts counts;
  for (const Part& part : machine.parts) {
    counts.packages += part.kind == PartKind::package;
    counts.numa += part.kind == PartKind::numa;
    counts.cores += part.kind == PartKind::core;
    counts.pus += part.kind == PartKind::pu;
    if (part.kind != PartKind::pci_function) continue;
    counts.gpu_pci += is_gpu_class(*part.pci);
    counts.nic_pci += is_nic_class(*part.pci);
  }
  counts.nvlink_or_xgmi = static_cast<std::uint32_t>(accelerator_links(machine).size());
  return counts;
}

std::vector<AcceleratorLink> accelerator_links(const Machine& machine) {
  std::vector<AcceleratorLink> links = machine.links;
  const auto is_gpu = [&](PartIndex part) {
    return std::any_of(machine.gpus.begin(), machine.gpus.end(), [&](const Gpu& gpu) { return gpu.part == part; });
  };
  for (const Distances& matrix : machine.distances) {
    if (matrix.name != "NVLinkBandwidth" && matrix.name != "XGMIBandwidth") continue;
    const std::size_t n = matrix.parts.size();
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        const std::uint64_t megabytes = matrix.values[i * n + j];
        const auto& to = machine.parts[matrix.parts[j]].pci;
        if (i == j || megabytes == 0 || !is_gpu(matrix.parts[i]) || matrix.parts[i] == matrix.parts[j]) continue;
        const auto kind = matrix.name[0] == 'N' ? AcceleratorLink::Kind::nvlink : AcceleratorLink::Kind::xgmi;
        const bool nvswitch = machine.parts[matrix.parts[j]].subtype == "NVSwitch";  // whatever its class
        links.push_back({.from = matrix.parts[i],
                         .kind = kind,
                         .to = to ? to->bus : std::string{},
                         .to_class = nvswitch ? kNvSwitchClass
                                     : to     ? to->class_code
                                              : kProcessorClass,
                         .bytes_per_second = std::min(megabytes, std::uint64_t{1} << 40) * 1'000'000});
      }
    }
  }
  return links;
}

namespace {

/// Whether a function that is another device than function 0 of its slot looks like a virtual one: it is called so, or
/// has no interface of its own. Ports of a NIC that has two kinds of them are other devices, too.
bool seems_virtual(const Part& part) {
  const std::string* const name = find_info(part.infos, "PCIDevice");
  if (name != nullptr && name->find("Virtual") != std::string::npos) return true;
  return std::none_of(part.os_devices.begin(), part.os_devices.end(),
                      [](const OsDevice& each) { return each.kind == OsDevice::Kind::network; });
}

/// For sources that do not mark virtual functions: a NIC's function that is another device than function 0 of its slot,
/// if that is a NIC too.
void find_virtual_functions(Machine& machine) {
  std::map<std::string, const PciAttributes*, std::less<>> first;  // by slot
  for (const Part& part : machine.parts)
    if (part.pci && part.pci->bus.ends_with(".0") && is_nic_class(*part.pci))
      first[part.pci->bus.substr(0, part.pci->bus.size() - 2)] = &*part.pci;
  for (Part& part : machine.parts) {
    if (part.kind != PartKind::pci_function || !is_nic_class(*part.pci) || part.pci->bus.size() < 3) continue;
    const auto at = first.find(part.pci->bus.substr(0, part.pci->bus.size() - 2));
    if (at == first.end() || at->second == &*part.pci || at->second->device == part.pci->device) continue;
    if (!seems_virtual(part)) continue;
    part.pci->physical_function = at->second->bus;
  }
}

}  // namespace

void describe_devices(Machine& machine) {
  find_virtual_functions(machine);
  machine.gpus.clear();
  machine.nics.clear();
  for (PartIndex i = 0; i < machine.parts.size(); ++i) {
    if (auto gpu = gpu_from(machine.parts[i], i)) machine.gpus.push_back(std::move(*gpu));
    if (auto nic = nic_from(machine.parts[i], i)) machine.nics.push_back(std::move(*nic));
  }
}

Index::Index(const Machine& machine) : machine_(machine), links_(accelerator_links(machine)) {
  const std::size_t n = machine.parts.size();
  children_.resize(n);
  number_.resize(n);
  links_from_.resize(n);
  gpus_.resize(n);
  nics_.resize(n);
  for (const AcceleratorLink& link : links_) links_from_[link.from].push_back(&link);
  for (auto gpu = machine.gpus.rbegin(); gpu != machine.gpus.rend(); ++gpu) gpus_[gpu->part] = &*gpu;
  for (auto nic = machine.nics.rbegin(); nic != machine.nics.rend(); ++nic) nics_[nic->part] = &*nic;
  std::array<std::uint32_t, kPartNames.size()> next{};
  for (PartIndex i = 0; i < n; ++i) {
    const Part& part = machine.parts[i];
    if (i != kRoot) children_[part.parent].push_back(i);
    number_[i] = next[static_cast<std::size_t>(part.kind)]++;
    if (part.pci && !part.pci->bus.empty()) by_bus_.emplace(part.pci->bus, i);
  }
  collect_cpus();
  find_numa();
}

void Index::collect_cpus() {
  const auto& parts = machine_.parts;
  cpus_.resize(parts.size());
  for (PartIndex i = static_cast<PartIndex>(parts.size()); i-- > 0;) {
    cpus_[i].add(parts[i].cpus);
    if (parts[i].kind == PartKind::pu && parts[i].os_index >= 0)
      cpus_[i].add(static_cast<std::uint32_t>(parts[i].os_index));
    if (i != kRoot) cpus_[parts[i].parent].add(cpus_[i]);
  }
  for (PartIndex i = 1; i < parts.size(); ++i)
    if (cpus_[i].empty()) cpus_[i] = cpus_[parts[i].parent];
}

void Index::find_numa() {
  const auto& parts = machine_.parts;
  numa_.assign(parts.size(), kNoPart);
  std::vector<PartIndex> all;
  for (PartIndex i = 0; i < parts.size(); ++i) {
    if (!is_memory(parts[i])) continue;
    all.push_back(i);
    PartIndex owner = parts[i].parent;
    while (parts[owner].kind == PartKind::memory_cache) owner = parts[owner].parent;
    if (numa_[owner] == kNoPart) numa_[owner] = i;
  }
  if (numa_[kRoot] == kNoPart && all.size() == 1) numa_[kRoot] = all.front();
  for (PartIndex i = 1; i < parts.size(); ++i) {
    if (is_memory(parts[i])) numa_[i] = i;
    if (numa_[i] == kNoPart) numa_[i] = numa_[parts[i].parent];
  }
}

PartIndex Index::at_bus(std::string_view bus) const {
  const auto at = by_bus_.find(bus);
  return at == by_bus_.end() ? kNoPart : at->second;
}

PartIndex Index::package_of(PartIndex part) const {
  const auto& parts = machine_.parts;
  for (PartIndex i = part; i != kNoPart; i = parts[i].parent)
    if (parts[i].kind == PartKind::package) return i;
  if (cpus_[part].empty()) return kNoPart;
  for (PartIndex i = 0; i < parts.size(); ++i)
    if (parts[i].kind == PartKind::package && cpus_[i].includes(cpus_[part])) return i;
  return kNoPart;
}

std::string label_of(const Index& index, PartIndex part) {
  const Part& it = index.machine().parts[part];
  if (const Gpu* const gpu = index.gpu_at(part)) return text("GPU ", gpu - index.machine().gpus.data());
  const Nic* const nic = index.nic_at(part);
  if (nic != nullptr && (it.kind == PartKind::pci_function || it.kind == PartKind::misc)) {
    if (!nic->ports.empty() && !nic->ports.front().device.empty()) return nic->ports.front().device;
    if (!nic->interfaces.empty()) return nic->interfaces.front().name;
    if (it.pci && !it.pci->bus.empty()) return "NIC " + it.pci->bus;
  }
  switch (it.kind) {
    case PartKind::machine: return index.machine().host.empty() ? "machine" : index.machine().host;
    case PartKind::numa:
      return text("NUMA ", it.os_index >= 0 ? it.os_index : static_cast<std::int32_t>(index.number(part)));
    case PartKind::package: return text("package ", index.number(part));
    case PartKind::core: return text("core ", index.number(part));
    case PartKind::pu: return text("PU ", it.os_index);
    case PartKind::host_bridge: return text("host bridge ", index.number(part));
    case PartKind::pci_switch:
      if (it.pci->bus.empty()) return text("switch ", index.number(part));
      return "switch " + it.pci->bus;
    default: break;
  }
  if (it.pci && !it.pci->bus.empty()) return it.pci->bus;
  return text(name_of(it.kind), ' ', index.number(part));
}

void check(const Machine& machine, std::string_view source) {
  const std::size_t n = machine.parts.size();
  TROUPE_CHECK(n > 0 && machine.parts[0].kind == PartKind::machine && machine.parts[0].parent == kNoPart, Code::invalid,
               source, ": the first part must be the machine");
  std::vector<PartIndex> open{kRoot};  // the path to the previous part
  for (PartIndex i = 1; i < n; ++i) {
    const Part& part = machine.parts[i];
    while (!open.empty() && open.back() != part.parent) open.pop_back();
    TROUPE_CHECK(!open.empty(), Code::invalid, source, ": part ", i, " does not stand behind its parent ", part.parent);
    open.push_back(i);
    const bool pci = part.kind >= PartKind::host_bridge && part.kind <= PartKind::pci_function;
    TROUPE_CHECK(pci == part.pci.has_value(), Code::invalid, source, ": part ", i, " (", name_of(part.kind), ") ",
                 pci ? "lacks its PCI attributes" : "has PCI attributes");
    TROUPE_CHECK(part.cache.has_value() == (part.kind == PartKind::cache || part.kind == PartKind::memory_cache),
                 Code::invalid, source, ": part ", i, " (", name_of(part.kind), ") and its cache attributes disagree");
    TROUPE_CHECK(part.kind != PartKind::pu || part.os_index >= 0, Code::invalid, source, ": pu ", i, " has no number");
    TROUPE_CHECK(part.os_index < static_cast<std::int32_t>(CpuSet::kEnd), Code::invalid, source, ": part ", i,
                 " has the number ", part.os_index, "; at most ", CpuSet::kEnd - 1, " is read");
  }
  const auto inside = [&](PartIndex part, const char* what) {
    TROUPE_CHECK(part < n, Code::invalid, source, ": ", what, " names part ", part, ", but there are only ", n);
  };
  for (const Gpu& gpu : machine.gpus) inside(gpu.part, "a GPU");
  for (const Nic& nic : machine.nics) inside(nic.part, "a NIC");
  for (const AcceleratorLink& link : machine.links) {
    inside(link.from, "a link");
    TROUPE_CHECK(link.lanes_down <= link.lanes, Code::invalid, source, ": a link has ", link.lanes_down,
                 " lanes down of ", link.lanes);
  }
  for (const Distances& matrix : machine.distances) {
    for (const PartIndex part : matrix.parts) inside(part, "a matrix");
    TROUPE_CHECK(matrix.values.size() == matrix.parts.size() * matrix.parts.size(), Code::invalid, source, ": matrix ",
                 matrix.name, " has ", matrix.values.size(), " values for ", matrix.parts.size(), " parts");
  }
}

}  // namespace troupe::topology
