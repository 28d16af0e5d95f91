#include "runtime/topology/nccl_xml.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "runtime/base/detail/with_context.hpp"
#include "runtime/base/error.hpp"
#include "runtime/topology/detail/bounds.hpp"
#include "runtime/topology/detail/xml.hpp"

namespace troupe::topology {
namespace {

using detail::number_of;
using detail::text_of;

/// hwloc's names of the infos of a package for NCCL's attributes of a <cpu>.
struct Renamed {
  const char* nccl;
  const char* info;
};
constexpr std::array<Renamed, 4> kCpuInfos{{{"arch", "Architecture"},
                                            {"vendor", "CPUVendor"},
                                            {"familyid", "CPUFamilyNumber"},
                                            {"modelid", "CPUModelNumber"}}};

std::uint16_t hex16(const pugi::xml_node& node, const char* attribute) {
  const std::string_view text = text_of(node, attribute);
  return text.empty() ? std::uint16_t{0} : static_cast<std::uint16_t>(detail::hex_of(text, attribute) & 0xffff);
}

std::uint32_t class_of(const pugi::xml_node& node, const char* attribute) {
  const std::string_view text = text_of(node, attribute);
  return text.empty() ? 0 : static_cast<std::uint32_t>(detail::hex_of(text, attribute) & 0xffffff);
}

/// "32.0 GT/s PCIe" -> 32; 0 for text that does not begin with a number.
double gigatransfers_of(std::string_view text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return std::isfinite(value) && value > 0 && value < 1000 ? value : 0;
}

std::uint32_t bounded(const pugi::xml_node& node, const char* attribute, std::uint64_t most) {
  const std::uint64_t value = number_of(node, attribute);
  TROUPE_CHECK(value <= most, Code::invalid, '<', node.name(), ' ', attribute, "=\"", value, "\">: at most ", most,
               " is read");
  return static_cast<std::uint32_t>(value);
}

/// RCCL's number 910 is the architecture that its compilers call gfx90a.
std::string gfx_name(std::string_view gcn) {
  if (gcn.starts_with("gfx")) return std::string{gcn};
  return gcn == "910" ? "gfx90a" : text("gfx", gcn);
}

/// NCCL reads "0x506b4b03003ceee8"; the kernel writes "506b:4b03:003c:eee8".
std::string guid_for_nccl(std::string guid) {
  if (guid.find(':') == std::string::npos) return guid;
  std::erase(guid, ':');
  return "0x" + guid;
}

class NcclReader {
 public:
  Machine read(const pugi::xml_node& system) {
    for (const auto& cpu : system.children("cpu")) read_cpu(cpu);
    describe_devices(machine_);
    for (const Gpu& gpu : machine_.gpus) gpus_.try_emplace(gpu.part, gpu);
    machine_.gpus.clear();
    for (auto& [part, gpu] : gpus_) machine_.gpus.push_back(std::move(gpu));
    for (const Nic& nic : machine_.nics) nics_.try_emplace(nic.part, nic);
    machine_.nics.clear();
    for (auto& [part, nic] : nics_) machine_.nics.push_back(std::move(nic));
    return std::move(machine_);
  }

 private:
  PartIndex append(PartKind kind, PartIndex parent) {
    TROUPE_CHECK(machine_.parts.size() < detail::kMostParts, Code::invalid, "more than ", detail::kMostParts, " parts");
    machine_.parts.push_back({.kind = kind, .parent = parent});
    return static_cast<PartIndex>(machine_.parts.size() - 1);
  }

  void read_cpu(const pugi::xml_node& node) {
    const PartIndex package = append(PartKind::package, kRoot);
    Part& part = machine_.parts[package];
    part.cpus = CpuSet::from_mask(text_of(node, "affinity"));
    for (const Renamed& name : kCpuInfos)
      if (node.attribute(name.nccl)) part.infos.push_back({name.info, std::string{text_of(node, name.nccl)}});
    const PartIndex numa = append(PartKind::numa, package);
    // NCCL writes -1 if the system does not say.
    if (!text_of(node, "numaid").starts_with('-'))
      machine_.parts[numa].os_index = static_cast<std::int32_t>(bounded(node, "numaid", CpuSet::kEnd - 1));
    read_devices(node, package);
    for (const auto& nic : node.children("nic")) {  // not behind any known PCI function
      const PartIndex own = append(PartKind::misc, package);
      machine_.parts[own].subtype = "NIC";
      read_nic(nic, own);
    }
  }

  void read_devices(const pugi::xml_node& node, PartIndex parent) {
    for (const auto& child : node.children()) {
      const std::string_view name = child.name();
      if (name == "pci") read_pci(child, parent);
      if (name == "gpu") read_gpu(child, parent);
      if (name == "nic" && machine_.parts[parent].pci) read_nic(child, parent);
    }
  }

  void read_pci(const pugi::xml_node& node, PartIndex parent) {
    PciAttributes pci;
    pci.bus = text_of(node, "busid");
    pci.class_code = class_of(node, "class");
    pci.vendor = hex16(node, "vendor");
    pci.device = hex16(node, "device");
    pci.subsystem_vendor = hex16(node, "subsystem_vendor");
    pci.subsystem_device = hex16(node, "subsystem_device");
    pci.now.gigatransfers = gigatransfers_of(text_of(node, "link_speed"));
    pci.now.lanes = bounded(node, "link_width", 1024);
    const bool is_switch = pci.class_code >> 8 == 0x0604 || node.child("pci");
    const PartIndex part = append(is_switch ? PartKind::pci_switch : PartKind::pci_function, parent);
    machine_.parts[part].pci = std::move(pci);
    read_devices(node, part);
  }

  static void keep(const pugi::xml_node& node, std::initializer_list<std::string_view> known,
                   std::vector<Info>& infos) {
    for (const auto& attribute : node.attributes())
      if (std::find(known.begin(), known.end(), attribute.name()) == known.end())
        infos.push_back({attribute.name(), attribute.value()});
  }

  void read_gpu(const pugi::xml_node& node, PartIndex part) {
    Gpu& gpu = gpus_[part];
    gpu.part = part;
    const std::string_view gcn = text_of(node, "gcn");
    const std::string_view sm = text_of(node, "sm");
    const auto& pci = machine_.parts[part].pci;
    gpu.vendor = !gcn.empty() || (pci && pci->vendor == 0x1002) ? "amd" : "nvidia";
    if (!gcn.empty())
      gpu.architecture = gfx_name(gcn);
    else if (!sm.empty())
      gpu.architecture = text("sm_", sm);
    keep(node, {}, gpu.infos);
    using Kind = AcceleratorLink::Kind;
    for (const auto& child : node.children()) {
      const std::string_view name = child.name();
      if (name != "nvlink" && name != "xgmi" && name != "c2c") continue;
      AcceleratorLink link{.from = part,
                           .kind = name == "nvlink" ? Kind::nvlink
                                   : name == "xgmi" ? Kind::xgmi
                                                    : Kind::c2c};
      link.to = text_of(child, "target");
      link.to_class = class_of(child, "tclass");
      link.lanes = bounded(child, "count", 1024);
      link.bytes_per_second = static_cast<std::uint64_t>(detail::decimal_of(child, "bw") * 1e6) * 1000;
      machine_.links.push_back(std::move(link));
    }
  }

  void read_nic(const pugi::xml_node& node, PartIndex part) {
    Nic& nic = nics_[part];
    nic.part = part;
    for (const auto& net : node.children("net")) {
      RdmaPort port;
      port.device = text_of(net, "name");
      port.port = bounded(net, "port", 255);
      port.bits_per_second = std::uint64_t{bounded(net, "speed", 100'000'000)} * 1'000'000;
      port.guid = text_of(net, "guid");
      keep(net, {"name", "port", "speed", "guid"}, port.infos);
      nic.ports.push_back(std::move(port));
    }
  }

  Machine machine_;
  std::map<PartIndex, Gpu> gpus_;
  std::map<PartIndex, Nic> nics_;
};

class NcclWriter {
 public:
  explicit NcclWriter(const Machine& machine) : machine_(machine), index_(machine) {
    const auto& parts = machine.parts;
    everything_ =
        std::none_of(parts.begin(), parts.end(), [](const Part& p) { return p.kind == PartKind::host_bridge; });
  }

  std::string write() {
    pugi::xml_document document;
    pugi::xml_node system = document.append_child("system");
    const bool amd =
        std::any_of(machine_.gpus.begin(), machine_.gpus.end(), [](const Gpu& g) { return g.vendor == "amd"; });
    system.append_attribute("version") = amd ? 2 : 1;
    std::vector<PartIndex> units;
    for (PartIndex i = 0; i < machine_.parts.size(); ++i)
      if (index_.numa_of(i) == i) units.push_back(i);
    if (units.empty()) units.push_back(kNoPart);  // unknown memory
    for (const PartIndex unit : units) write_cpu(system, unit, unit == units.front());
    return detail::printed(document);
  }

 private:
  bool is_pci(PartIndex part) const { return machine_.parts[part].pci.has_value(); }

  void write_cpu(pugi::xml_node system, PartIndex numa, bool first) {
    pugi::xml_node cpu = system.append_child("cpu");
    const PartIndex near = numa == kNoPart ? kRoot : numa;
    const std::int32_t os = numa == kNoPart ? 0 : machine_.parts[numa].os_index;
    cpu.append_attribute("numaid") = os;
    std::string affinity = index_.cpus(near).mask();
    for (auto at = affinity.find("0x"); at != std::string::npos; at = affinity.find("0x")) affinity.erase(at, 2);
    if (!index_.cpus(near).empty()) cpu.append_attribute("affinity") = affinity.c_str();
    const PartIndex package = index_.package_of(near);
    for (const Renamed& name : kCpuInfos) {
      const std::string* value = package == kNoPart ? nullptr : find_info(machine_.parts[package].infos, name.info);
      if (value == nullptr) value = find_info(machine_.parts[kRoot].infos, name.info);
      if (value != nullptr) cpu.append_attribute(name.nccl) = *value == "aarch64" ? "arm64" : value->c_str();
    }
    for (PartIndex i = 1; i < machine_.parts.size(); ++i) {
      if (!is_pci(i) || is_pci(machine_.parts[i].parent)) continue;
      const PartIndex near_it = index_.numa_of(i);
      if (near_it == numa || (near_it == kNoPart && first)) write_pci(cpu, i, 0);
    }
    const PartIndex holder = numa == kNoPart ? kRoot : machine_.parts[numa].parent;
    write_nic(cpu, holder);
    for (const PartIndex child : index_.children(holder))
      if (machine_.parts[child].kind == PartKind::misc) write_nic(cpu, child);
  }

  bool leads_to_devices(PartIndex part) const {
    if (everything_ || index_.gpu_at(part) != nullptr || index_.nic_at(part) != nullptr) return true;
    const auto& below = index_.children(part);
    return std::any_of(below.begin(), below.end(), [&](PartIndex child) { return leads_to_devices(child); });
  }

  /// `bridges`: how many of hwloc's PCI bridges are above. The first is a root port; below it, upstream and downstream
  /// ports of switches alternate; the upstream port represents its switch.
  void write_pci(pugi::xml_node parent, PartIndex index, std::uint32_t bridges) {
    if (!leads_to_devices(index)) return;
    const Part& part = machine_.parts[index];
    const bool bridge = part.kind == PartKind::pci_bridge;
    if (part.kind == PartKind::host_bridge || (bridge && bridges % 2 == 0)) {
      for (const PartIndex child : index_.children(index))
        if (is_pci(child)) write_pci(parent, child, bridges + bridge);
      return;
    }
    pugi::xml_node node = parent.append_child("pci");
    add_attributes(node, *part.pci);
    for (const PartIndex child : index_.children(index))
      if (is_pci(child)) write_pci(node, child, bridges + bridge);
    if (const Gpu* const gpu = index_.gpu_at(index)) write_gpu(node, *gpu);
    write_nic(node, index);
  }

  static void add_attributes(pugi::xml_node node, const PciAttributes& pci) {
    const auto hex = [&](const char* name, std::uint32_t value, int digits) {
      std::array<char, 16> text;
      std::snprintf(text.data(), text.size(), "0x%0*x", digits, value);
      node.append_attribute(name) = text.data();
    };
    node.append_attribute("busid") = pci.bus.c_str();
    if (pci.class_code != 0) hex("class", pci.class_code, 6);
    if (pci.vendor != 0) {
      hex("vendor", pci.vendor, 4);
      hex("device", pci.device, 4);
      hex("subsystem_vendor", pci.subsystem_vendor, 4);
      hex("subsystem_device", pci.subsystem_device, 4);
    }
    PciLink link = pci.now;
    if (link.gigatransfers == 0 && link.gigabytes > 0) link = lanes_for(link.gigabytes);
    if (link.gigatransfers > 0) {
      std::array<char, 32> text;
      std::snprintf(text.data(), text.size(), "%.1f GT/s PCIe", link.gigatransfers);
      node.append_attribute("link_speed") = text.data();
    }
    if (link.lanes > 0) node.append_attribute("link_width") = link.lanes;
  }

  /// The common link whose rate is nearest to the total that hwloc gives.
  static PciLink lanes_for(double gigabytes) {
    PciLink best;
    double off = 1e9;
    for (const double rate : {2.5, 5.0, 8.0, 16.0, 32.0, 64.0}) {
      for (const std::uint32_t lanes : {16u, 8u, 4u, 2u, 1u}) {
        const PciLink link{.gigatransfers = rate, .lanes = lanes};
        const double here = std::abs(bytes_per_second(link) / 1e9 - gigabytes);
        if (here < off - 1e-6) best = link, off = here;
      }
    }
    return best;
  }

  void write_gpu(pugi::xml_node parent, const Gpu& gpu) {
    const bool linked =
        std::any_of(index_.links().begin(), index_.links().end(), [&](const auto& l) { return l.from == gpu.part; });
    if (gpu.infos.empty() && !linked) return;  // NCCL queries the GPU itself
    pugi::xml_node node = parent.append_child("gpu");
    for (const Info& info : gpu.infos) node.append_attribute(info.name.c_str()) = info.value.c_str();
    if (gpu.infos.empty()) {
      node.append_attribute("dev") = &gpu - machine_.gpus.data();
      if (gpu.architecture.starts_with("sm_")) node.append_attribute("sm") = gpu.architecture.c_str() + 3;
      if (gpu.architecture.starts_with("gfx")) node.append_attribute("gcn") = gpu.architecture.c_str();
    }
    for (const AcceleratorLink& link : index_.links()) {
      if (link.from != gpu.part) continue;
      using Kind = AcceleratorLink::Kind;
      pugi::xml_node child = node.append_child(link.kind == Kind::nvlink ? "nvlink"
                                               : link.kind == Kind::xgmi ? "xgmi"
                                                                         : "c2c");
      if (!link.to.empty()) child.append_attribute("target") = link.to.c_str();
      // A matrix of bandwidths does not contain the number of lanes; one has about 25 GB/s.
      const auto guess =
          static_cast<std::uint32_t>(std::max(1.0, static_cast<double>(link.bytes_per_second) / 25e9 + 0.5));
      child.append_attribute("count") = link.lanes > 0 ? link.lanes : guess;
      if (link.kind == Kind::c2c && link.bytes_per_second > 0)
        child.append_attribute("bw") = detail::shortest(static_cast<double>(link.bytes_per_second) / 1e9).c_str();
      if (link.to_class != 0) {
        std::array<char, 16> text;
        std::snprintf(text.data(), text.size(), "0x%06x", link.to_class);
        child.append_attribute("tclass") = text.data();
      }
    }
  }

  void write_nic(pugi::xml_node parent, PartIndex part) {
    const Nic* const nic = index_.nic_at(part);
    if (nic == nullptr || nic->ports.empty()) return;
    pugi::xml_node node = parent.append_child("nic");
    for (const RdmaPort& port : nic->ports) {
      pugi::xml_node net = node.append_child("net");
      net.append_attribute("name") = port.device.c_str();
      // NCCL looks up what is left out, and nothing else.
      if (port.bits_per_second > 0) net.append_attribute("speed") = port.bits_per_second / 1'000'000;
      net.append_attribute("port") = port.port;
      if (!port.guid.empty()) net.append_attribute("guid") = guid_for_nccl(port.guid).c_str();
      for (const Info& info : port.infos) net.append_attribute(info.name.c_str()) = info.value.c_str();
    }
  }

  const Machine& machine_;
  const Index index_;
  bool everything_ = false;  // write all functions, not only those that lead to GPUs and NICs
};

NcclGraph read_graph(const pugi::xml_node& node) {
  NcclGraph graph;
  graph.id = bounded(node, "id", 1000);
  graph.pattern = bounded(node, "pattern", 1000);
  graph.speed_intra = detail::decimal_of(node, "speedintra");
  graph.type_intra = text_of(node, "typeintra");
  for (const auto& channel : node.children("channel")) {
    auto& order = graph.channels.emplace_back();
    for (const auto& gpu : channel.children("gpu")) order.push_back(bounded(gpu, "dev", 1'000'000));
  }
  return graph;
}

}  // namespace

Machine machine_from_nccl_xml(std::string_view text, std::string_view source) {
  pugi::xml_document document;
  detail::parse_xml(document, text, source);
  const pugi::xml_node system = document.child("system");
  TROUPE_CHECK(system, Code::invalid, source, ": this XML has no <system>, so it is not a topology of NCCL");
  return with_context(source, [&] {
    Machine machine = NcclReader{}.read(system);
    check(machine, "what it describes");
    return machine;
  });
}

std::string to_nccl_xml(const Machine& machine) { return NcclWriter{machine}.write(); }

std::vector<NcclGraph> graphs_from_nccl_xml(std::string_view text, std::string_view source) {
  pugi::xml_document document;
  detail::parse_xml(document, text, source);
  const pugi::xml_node graphs = document.child("graphs");
  TROUPE_CHECK(graphs, Code::invalid, source, ": this XML has no <graphs>");
  return with_context(source, [&] {
    std::vector<NcclGraph> all;
    for (const auto& graph : graphs.children("graph")) all.push_back(read_graph(graph));
    return all;
  });
}

}  // namespace troupe::topology
