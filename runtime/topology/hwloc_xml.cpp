#include "runtime/topology/hwloc_xml.hpp"

#include <algorithm>
#include <array>
#include <sstream>
#include <unordered_map>

#include "runtime/base/detail/with_context.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "runtime/topology/detail/bounds.hpp"
#include "runtime/topology/detail/details.hpp"
#include "runtime/topology/detail/xml.hpp"

// Objects become parts in the order of the file, so a part always follows its parent. Two things are changed: OS
// devices become faces of the part that contains them, and a NUMA node of hwloc 1, which contains processors, is put
// beside them. Sets of processors are not stored, but computed from the PUs when they are needed.
namespace troupe::topology {
namespace {

using detail::number_of;
using detail::text_of;

constexpr const char* kDetails = "TroupeDetails";

bool is_type(const pugi::xml_node& node, std::initializer_list<std::string_view> types) {
  return std::find(types.begin(), types.end(), text_of(node, "type")) != types.end();
}
bool is_numa(const pugi::xml_node& node) { return is_type(node, {"NUMANode", "Node"}); }
/// Whether it is not a device, memory or a remark.
bool is_normal(const pugi::xml_node& node) {
  return !is_numa(node) && !is_type(node, {"Bridge", "PCIDev", "OSDev", "Misc", "MemCache"});
}

struct Tokens {
  std::string_view left;
  std::string_view next() {
    const auto first = left.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos) return left = {};
    const auto last = std::min(left.find_first_of(" \t\r\n", first), left.size());
    const std::string_view token = left.substr(first, last - first);
    left.remove_prefix(last);
    return token;
  }
};

std::uint64_t whole(std::string_view text, const char* what) {
  const auto value = number_in<std::uint64_t>(text);
  TROUPE_CHECK(value, Code::invalid, what, ": \"", text.substr(0, 40), "\" is not a whole number");
  return *value;
}

class HwlocReader {
 public:
  Machine read(const pugi::xml_node& topology) {
    const pugi::xml_node root = topology.child("object");
    TROUPE_CHECK(is_type(root, {"Machine", "System"}), Code::invalid, "the first object is not a Machine");
    old_ = text_of(topology, "version").empty();
    TROUPE_CHECK(root.next_sibling("object").empty(), Code::invalid, "there is more than one machine");
    remember(root, kRoot);
    read_infos(root, machine_.parts[kRoot].infos);
    machine_.limits.allowed = disallowed_known(root);
    read_children(root, kRoot);
    read_tables(topology);
    if (const std::string* const name = find_info(machine_.parts[kRoot].infos, "HostName")) machine_.host = *name;
    describe_devices(machine_);
    return std::move(machine_);
  }

 private:
  /// The processors that may be used; empty if all may.
  static CpuSet disallowed_known(const pugi::xml_node& root) {
    const auto all = CpuSet::from_mask(text_of(root, "complete_cpuset"));
    auto allowed = CpuSet::from_mask(text_of(root, "allowed_cpuset"));
    return allowed == all ? CpuSet{} : allowed;
  }

  void remember(const pugi::xml_node& node, PartIndex part) {
    if (const std::uint64_t gp = number_of(node, "gp_index"); gp != 0) by_gp_.emplace(gp, part);
  }

  static void read_infos(const pugi::xml_node& node, std::vector<Info>& infos) {
    for (const auto& info : node.children("info"))
      infos.push_back({std::string{text_of(info, "name")}, std::string{text_of(info, "value")}});
  }

  void read_children(const pugi::xml_node& node, PartIndex parent) {
    for (const auto& child : node.children("object")) read_object(child, parent, {});
  }

  /// `memory`, of hwloc 1, contains only this object, and is moved into it.
  void read_object(const pugi::xml_node& node, PartIndex parent, const pugi::xml_node& memory) {
    if (is_type(node, {"OSDev"})) return read_face(node, parent);
    if (is_numa(node) && has_processors(node)) return read_old_numa(node, parent);
    const PartIndex part = add(node, parent);
    if (memory) {
      add(memory, part);
      for (const auto& child : memory.children("object"))
        if (child != node) read_object(child, part, {});
    }
    read_children(node, part);
  }

  static bool has_processors(const pugi::xml_node& numa) {
    const auto children = numa.children("object");
    return std::any_of(children.begin(), children.end(), is_normal);
  }

  void read_old_numa(const pugi::xml_node& node, PartIndex parent) {
    pugi::xml_node only;
    std::size_t count = 0;
    for (const auto& child : node.children("object")) {
      if (!is_normal(child)) continue;
      only = child;
      ++count;
    }
    const std::string_view cpus = text_of(node, "cpuset");
    if (count == 1 && text_of(only, "cpuset") == cpus) return read_object(only, parent, node);
    if (text_of(node.parent(), "cpuset") == cpus) {
      add(node, parent);
      return read_children(node, parent);
    }
    const PartIndex group = append(PartKind::group, parent);
    add(node, group);
    read_children(node, group);
  }

  PartIndex append(PartKind kind, PartIndex parent) {
    TROUPE_CHECK(machine_.parts.size() < detail::kMostParts, Code::invalid, "more than ", detail::kMostParts, " parts");
    machine_.parts.push_back({.kind = kind, .parent = parent});
    return static_cast<PartIndex>(machine_.parts.size() - 1);
  }

  PartIndex add(const pugi::xml_node& node, PartIndex parent) {
    const std::string_view type = text_of(node, "type");
    const bool cache = type.ends_with("Cache");
    const PartIndex index = append(cache ? cache_kind(type) : kind_of(node), parent);
    Part& part = machine_.parts[index];
    remember(node, index);
    if (node.attribute("os_index")) {
      const std::uint64_t number = number_of(node, "os_index");
      // hwloc writes 4294967295 for an unknown number.
      if (number < CpuSet::kEnd) part.os_index = static_cast<std::int32_t>(number);
    }
    TROUPE_CHECK(part.kind != PartKind::pu || part.os_index >= 0, Code::invalid, "a PU has the number \"",
                 text_of(node, "os_index").substr(0, 40), "\", which is none below ", CpuSet::kEnd);
    part.subtype = text_of(node, "subtype");
    part.name = text_of(node, "name");
    if (part.kind == PartKind::numa) part.bytes = number_of(node, "local_memory");
    if (cache) read_cache(node, part);
    if (part.kind == PartKind::host_bridge) part.pci.emplace().below = text_of(node, "bridge_pci");
    if (part.kind == PartKind::pci_bridge || part.kind == PartKind::pci_function) read_pci(node, part.pci.emplace());
    read_infos(node, part.infos);
    if (part.subtype.empty() && (part.kind == PartKind::numa || part.kind == PartKind::misc))
      if (const std::string* const kind = find_info(part.infos, "Type")) part.subtype = *kind;  // hwloc 1
    return index;
  }

  static PartKind cache_kind(std::string_view type) {
    return type == "MemCache" ? PartKind::memory_cache : PartKind::cache;
  }

  static PartKind kind_of(const pugi::xml_node& node) {
    static const std::unordered_map<std::string_view, PartKind> kKinds{
        {"Package", PartKind::package},     {"Socket", PartKind::package}, {"Die", PartKind::die},
        {"Group", PartKind::group},         {"Machine", PartKind::group},  {"NUMANode", PartKind::numa},
        {"Node", PartKind::numa},           {"Core", PartKind::core},      {"PU", PartKind::pu},
        {"PCIDev", PartKind::pci_function}, {"Misc", PartKind::misc}};
    const std::string_view type = text_of(node, "type");
    if (type == "Bridge")
      return text_of(node, "bridge_type").starts_with('0') ? PartKind::host_bridge : PartKind::pci_bridge;
    const auto at = kKinds.find(type);
    TROUPE_CHECK(at != kKinds.end(), Code::invalid, "an object has the type \"", type.substr(0, 40),
                 "\", which hwloc 1 and 2 do not have");
    return at->second;
  }

  static void read_cache(const pugi::xml_node& node, Part& part) {
    CacheAttributes& cache = part.cache.emplace();
    part.bytes = number_of(node, "cache_size");
    cache.level = static_cast<std::uint32_t>(std::min<std::uint64_t>(number_of(node, "depth"), 16));
    cache.line_bytes = static_cast<std::uint32_t>(number_of(node, "cache_linesize") & 0xffffffff);
    const std::string_view ways = text_of(node, "cache_associativity");
    cache.ways =
        ways.starts_with('-') ? -1 : static_cast<std::int32_t>(number_of(node, "cache_associativity") & 0xffff);
    const std::uint64_t holds = number_of(node, "cache_type");
    cache.holds = holds == 1   ? CacheAttributes::Holds::data
                  : holds == 2 ? CacheAttributes::Holds::instructions
                               : CacheAttributes::Holds::both;
  }

  /// pci_type is "0604 [8086:3c03] [0000:0000] 07": class, vendor and device, those of the subsystem, revision.
  static void read_pci(const pugi::xml_node& node, PciAttributes& pci) {
    pci.bus = text_of(node, "pci_busid");
    pci.below = text_of(node, "bridge_pci");
    pci.now.gigabytes = detail::decimal_of(node, "pci_link_speed");
    const std::string_view type = text_of(node, "pci_type");
    if (type.empty()) return;
    TROUPE_CHECK(type.size() >= 27 && type.substr(4, 2) == " [" && type.substr(10, 1) == ":", Code::invalid,
                 "pci_type=\"", type.substr(0, 60), "\" is not of the form \"0604 [8086:3c03] [0000:0000] 07\"");
    const auto hex = [&](std::size_t at, std::size_t size) {
      return detail::hex_of(type.substr(at, size), "pci_type's");
    };
    pci.class_code = static_cast<std::uint32_t>(hex(0, 4)) << 8;
    pci.vendor = static_cast<std::uint16_t>(hex(6, 4));
    pci.device = static_cast<std::uint16_t>(hex(11, 4));
    pci.subsystem_vendor = static_cast<std::uint16_t>(hex(18, 4));
    pci.subsystem_device = static_cast<std::uint16_t>(hex(23, 4));
    if (type.size() >= 31) pci.revision = static_cast<std::uint8_t>(hex(29, 2));
  }

  void read_face(const pugi::xml_node& node, PartIndex part) {
    OsDevice os_device;
    os_device.kind = static_cast<OsDevice::Kind>(std::min<std::uint64_t>(number_of(node, "osdev_type"), 6));
    os_device.name = text_of(node, "name");
    os_device.backend = text_of(node, "subtype");
    read_infos(node, os_device.infos);
    machine_.parts[part].os_devices.push_back(std::move(os_device));
    remember(node, part);
    for (const auto& child : node.children("object")) {
      if (is_type(child, {"OSDev"})) read_face(child, part);
    }
  }

  void read_tables(const pugi::xml_node& topology) {
    if (old_) read_old_distances(topology.child("object"));
    for (const auto& node : topology.children()) {
      const std::string_view name = node.name();
      if (name == "distances2" || name == "distances2hetero") read_distances(node);
      if (name == "cpukind") read_cpu_kind(node);
    }
  }

  void read_cpu_kind(const pugi::xml_node& node) {
    CpuKind kind;
    kind.cpus = CpuSet::from_mask(text_of(node, "cpuset"));
    if (node.attribute("forced_efficiency"))
      kind.efficiency = static_cast<std::int32_t>(number_of(node, "forced_efficiency") & 0xffff);
    read_infos(node, kind.infos);
    machine_.cpu_kinds.push_back(std::move(kind));
  }

  /// hwloc 1 has latencies between NUMA nodes as decimals, divided by latency_base.
  void read_old_distances(const pugi::xml_node& root) {
    std::vector<PartIndex> numa;
    for (PartIndex i = 0; i < machine_.parts.size(); ++i)
      if (machine_.parts[i].kind == PartKind::numa) numa.push_back(i);
    for (const auto& node : root.children("distances")) {
      if (number_of(node, "nbobjs") != numa.size() || numa.size() > detail::kMostMatrixParts) continue;
      Distances matrix{.name = "NUMALatency", .kind = 5, .parts = numa};
      const double base = detail::decimal_of(node, "latency_base");
      for (const auto& value : node.children("latency"))
        matrix.values.push_back(static_cast<std::uint64_t>(
            std::min(detail::decimal_of(value, "value") * (base > 0 ? base : 1), 1e15) + 0.5));
      if (matrix.values.size() == numa.size() * numa.size()) machine_.distances.push_back(std::move(matrix));
    }
  }

  PartIndex numbered(PartKind kind, std::uint64_t os_index) const {
    for (PartIndex i = 0; i < machine_.parts.size(); ++i)
      if (machine_.parts[i].kind == kind && machine_.parts[i].os_index == static_cast<std::int64_t>(os_index)) return i;
    return kNoPart;
  }

  void read_distances(const pugi::xml_node& node) {
    const std::uint64_t n = number_of(node, "nbobjs");
    TROUPE_CHECK(n <= detail::kMostMatrixParts, Code::invalid, "a matrix has ", n, " parts; at most ",
                 detail::kMostMatrixParts, " are read");
    Distances matrix;
    matrix.name = text_of(node, "name");
    matrix.kind = static_cast<std::uint32_t>(number_of(node, "kind") & 0xffffffff);
    const bool by_os = text_of(node, "indexing") == "os";
    const PartKind kind = text_of(node, "type") == "PU" ? PartKind::pu : PartKind::numa;
    for (const auto& child : node.children("indexes")) {
      Tokens tokens{child.text().get()};
      for (std::string_view token; !(token = tokens.next()).empty();) {
        const auto colon = token.find(':');
        const std::uint64_t number =
            whole(token.substr(colon == std::string_view::npos ? 0 : colon + 1), "an index of a matrix");
        const auto at = by_gp_.find(number);
        matrix.parts.push_back(by_os ? numbered(kind, number) : at == by_gp_.end() ? kNoPart : at->second);
      }
    }
    for (const auto& child : node.children("u64values")) {
      Tokens tokens{child.text().get()};
      for (std::string_view token; !(token = tokens.next()).empty();)
        matrix.values.push_back(whole(token, "a value of a matrix"));
    }
    TROUPE_CHECK(matrix.parts.size() == n && matrix.values.size() == n * n, Code::invalid, "matrix ", matrix.name,
                 " should have ", n, " parts and ", n * n, " values, and has ", matrix.parts.size(), " and ",
                 matrix.values.size());
    const bool complete = std::find(matrix.parts.begin(), matrix.parts.end(), kNoPart) == matrix.parts.end();
    if (complete) machine_.distances.push_back(std::move(matrix));  // hwloc also drops a matrix with unknown objects
  }

  Machine machine_;
  bool old_ = false;  // written by hwloc 1
  std::unordered_map<std::uint64_t, PartIndex> by_gp_;
};

class HwlocWriter {
 public:
  explicit HwlocWriter(const Machine& machine) : machine_(machine), index_(machine) {
    for (PartIndex i = 0; i < machine.parts.size(); ++i) {
      if (machine.parts[i].kind == PartKind::pu) pus_ = true;
      if (!machine.parts[i].cpus.empty()) given_.add(machine.parts[i].cpus);
    }
    if (!pus_ && given_.empty()) given_.add(0);
  }

  std::string write(const std::string& details) {
    pugi::xml_document document;
    pugi::xml_node declaration = document.prepend_child(pugi::node_declaration);
    declaration.append_attribute("version") = "1.0";
    declaration.append_attribute("encoding") = "UTF-8";
    document.append_child(pugi::node_doctype).set_value("topology SYSTEM \"hwloc2.dtd\"");
    pugi::xml_node topology = document.append_child("topology");
    topology.append_attribute("version") = "2.0";
    details_ = &details;
    write_object(topology, kRoot, 0);
    for (const Distances& matrix : machine_.distances) write_distances(topology, matrix);
    for (const CpuKind& kind : machine_.cpu_kinds) write_cpu_kind(topology, kind);
    return detail::printed(document);
  }

 private:
  static void add_infos(pugi::xml_node node, const std::vector<Info>& infos) {
    for (const Info& info : infos) {
      pugi::xml_node child = node.append_child("info");
      child.append_attribute("name") = info.name.c_str();
      child.append_attribute("value") = info.value.c_str();
    }
  }

  static const char* type_of(const Part& part) {
    static constexpr std::array<const char*, 14> kTypes{"Machine",  "Package", "Die",    "Group", "NUMANode",
                                                        "MemCache", "",        "Core",   "PU",    "Bridge",
                                                        "Bridge",   "Bridge",  "PCIDev", "Misc"};
    static constexpr std::array<const char*, 5> kCaches{"L1Cache", "L2Cache", "L3Cache", "L4Cache", "L5Cache"};
    static constexpr std::array<const char*, 3> kInstructions{"L1iCache", "L2iCache", "L3iCache"};
    if (part.kind != PartKind::cache) return kTypes[static_cast<std::size_t>(part.kind)];
    const std::size_t level = std::max<std::size_t>(part.cache->level, 1) - 1;
    if (part.cache->holds == CacheAttributes::Holds::instructions)
      return kInstructions[std::min<std::size_t>(level, 2)];
    return kCaches[std::min<std::size_t>(level, 4)];
  }

  static bool has_cpus(PartKind kind) { return kind <= PartKind::pu; }

  std::string nodes(PartIndex part) const {
    CpuSet set;
    for (PartIndex at = part; set.empty() && at != kNoPart; at = machine_.parts[at].parent) collect(at, set);
    return set.empty() ? "0x1" : set.mask();
  }
  void collect(PartIndex part, CpuSet& set) const {
    if (machine_.parts[part].kind == PartKind::numa) set.add(node_number(part));
    for (const PartIndex child : index_.children(part))
      if (has_cpus(machine_.parts[child].kind)) collect(child, set);
  }
  std::uint32_t node_number(PartIndex part) const {
    const std::int32_t os = machine_.parts[part].os_index;
    return os >= 0 ? static_cast<std::uint32_t>(os) : index_.number(part);
  }

  void add_sets(pugi::xml_node node, PartIndex part) {
    const bool numa = machine_.parts[part].kind == PartKind::numa;
    const PartIndex owner =
        numa || machine_.parts[part].kind == PartKind::memory_cache ? machine_.parts[part].parent : part;
    const CpuSet& own = pus_ || !index_.cpus(owner).empty() ? index_.cpus(owner) : given_;
    const std::string cpus = own.mask();
    const std::string memory = nodes(part);
    node.append_attribute("cpuset") = cpus.c_str();
    node.append_attribute("complete_cpuset") = cpus.c_str();
    if (part == kRoot) {
      const auto& allowed = machine_.limits.allowed;
      node.append_attribute("allowed_cpuset") = allowed.empty() ? cpus.c_str() : allowed.mask().c_str();
    }
    node.append_attribute("nodeset") = memory.c_str();
    node.append_attribute("complete_nodeset") = memory.c_str();
    if (part == kRoot) node.append_attribute("allowed_nodeset") = memory.c_str();
  }

  void write_object(pugi::xml_node parent, PartIndex index, std::uint32_t depth) {
    const Part& part = machine_.parts[index];
    pugi::xml_node node = parent.append_child("object");
    node.append_attribute("type") = type_of(part);
    if (!part.subtype.empty()) node.append_attribute("subtype") = part.subtype.c_str();
    if (part.kind == PartKind::numa)
      node.append_attribute("os_index") = node_number(index);
    else if (part.os_index >= 0 || index == kRoot)
      node.append_attribute("os_index") = std::max(part.os_index, 0);
    if (has_cpus(part.kind)) add_sets(node, index);
    node.append_attribute("gp_index") = gp_of(index);
    if (!part.name.empty()) node.append_attribute("name") = part.name.c_str();
    if (part.kind == PartKind::numa) node.append_attribute("local_memory") = part.bytes;
    if (part.cache) add_cache(node, part);
    if (part.pci) add_pci(node, part, depth);
    add_infos(node, part.infos);
    if (index == kRoot && !details_->empty()) add_infos(node, {{kDetails, *details_}});
    if (index == kRoot && count(machine_).numa == 0) add_memory(node);
    if (!pus_ && part.kind == PartKind::package) add_processors(node, index);
    if (!pus_ && index == kRoot && count(machine_).packages == 0) add_processors(node, index);
    const std::uint32_t below = part.pci ? depth + 1 : 0;
    // hwloc requires memory first, then processors, devices and remarks; parts are mostly in this order already.
    for (const auto wanted : {0, 1, 2, 3})
      for (const PartIndex child : index_.children(index))
        if (order_of(machine_.parts[child].kind) == wanted) write_object(node, child, below);
    for (const OsDevice& os_device : part.os_devices) add_face(node, os_device);
  }

  static int order_of(PartKind kind) {
    if (kind == PartKind::numa || kind == PartKind::memory_cache) return 0;
    if (kind == PartKind::misc) return 3;
    return has_cpus(kind) ? 1 : 2;
  }

  static std::uint64_t gp_of(PartIndex part) { return std::uint64_t{part} + 1; }

  /// hwloc requires a NUMA node.
  void add_memory(pugi::xml_node machine) {
    pugi::xml_node numa = machine.append_child("object");
    numa.append_attribute("type") = "NUMANode";
    numa.append_attribute("os_index") = 0;
    add_sets(numa, kRoot);
    numa.remove_attribute("allowed_cpuset");
    numa.remove_attribute("allowed_nodeset");
    numa.append_attribute("gp_index") = machine_.parts.size() + ++made_;
    numa.append_attribute("local_memory") = 0;
  }

  /// hwloc requires PUs; if a topology has none, there is one for each processor of the package.
  void add_processors(pugi::xml_node node, PartIndex package) {
    const CpuSet& cpus = index_.cpus(package).empty() ? given_ : index_.cpus(package);
    const std::string memory = nodes(package);
    for (const std::uint32_t cpu : cpus.numbers()) {
      CpuSet one;
      one.add(cpu);
      pugi::xml_node pu = node.append_child("object");
      pu.append_attribute("type") = "PU";
      pu.append_attribute("os_index") = cpu;
      pu.append_attribute("cpuset") = one.mask().c_str();
      pu.append_attribute("complete_cpuset") = one.mask().c_str();
      pu.append_attribute("nodeset") = memory.c_str();
      pu.append_attribute("complete_nodeset") = memory.c_str();
      pu.append_attribute("gp_index") = machine_.parts.size() + ++made_;
    }
  }

  static void add_cache(pugi::xml_node node, const Part& part) {
    node.append_attribute("cache_size") = part.bytes;
    node.append_attribute("depth") = part.cache->level;
    node.append_attribute("cache_linesize") = part.cache->line_bytes;
    node.append_attribute("cache_associativity") = part.cache->ways;
    node.append_attribute("cache_type") = static_cast<unsigned>(part.cache->holds);
  }

  static void add_pci(pugi::xml_node node, const Part& part, std::uint32_t depth) {
    const PciAttributes& pci = *part.pci;
    const bool host = part.kind == PartKind::host_bridge;
    if (part.kind != PartKind::pci_function) {
      node.append_attribute("bridge_type") = host ? "0-1" : "1-1";
      node.append_attribute("depth") = depth;
      node.append_attribute("bridge_pci") = pci.below.empty() ? "0000:[00-ff]" : pci.below.c_str();
    }
    if (host) return;
    node.append_attribute("pci_busid") = pci.bus.c_str();
    std::array<char, 64> type;
    std::snprintf(type.data(), type.size(), "%04x [%04x:%04x] [%04x:%04x] %02x", (pci.class_code >> 8) & 0xffff,
                  pci.vendor, pci.device, pci.subsystem_vendor, pci.subsystem_device, pci.revision);
    node.append_attribute("pci_type") = type.data();
    const double speed = pci.now.gigabytes > 0 ? pci.now.gigabytes : bytes_per_second(pci.now) / 1e9;
    node.append_attribute("pci_link_speed") = detail::shortest(speed).c_str();
  }

  void add_face(pugi::xml_node node, const OsDevice& os_device) {
    pugi::xml_node child = node.append_child("object");
    child.append_attribute("type") = "OSDev";
    child.append_attribute("gp_index") = machine_.parts.size() + ++made_;
    child.append_attribute("name") = os_device.name.c_str();
    if (!os_device.backend.empty()) child.append_attribute("subtype") = os_device.backend.c_str();
    child.append_attribute("osdev_type") = static_cast<unsigned>(os_device.kind);
    add_infos(child, os_device.infos);
  }

  void write_distances(pugi::xml_node topology, const Distances& matrix) {
    if (matrix.parts.empty()) return;
    const auto kind = [&](PartIndex part) { return machine_.parts[part].kind; };
    const bool same = std::all_of(matrix.parts.begin(), matrix.parts.end(),
                                  [&](PartIndex part) { return kind(part) == kind(matrix.parts.front()); });
    const bool by_os = same && kind(matrix.parts.front()) == PartKind::numa;
    pugi::xml_node node = topology.append_child(same ? "distances2" : "distances2hetero");
    if (same) node.append_attribute("type") = type_of(machine_.parts[matrix.parts.front()]);
    node.append_attribute("nbobjs") = matrix.parts.size();
    node.append_attribute("kind") = matrix.kind;
    if (!matrix.name.empty()) node.append_attribute("name") = matrix.name.c_str();
    if (same) node.append_attribute("indexing") = by_os ? "os" : "gp";
    std::string indexes;
    for (const PartIndex part : matrix.parts) {
      if (!same) indexes += text(type_of(machine_.parts[part]), ':');
      indexes += text(by_os ? node_number(part) : gp_of(part), ' ');
    }
    std::string values;
    for (const std::uint64_t value : matrix.values) values += text(value, ' ');
    for (const auto& [name, content] : {std::pair{"indexes", &indexes}, std::pair{"u64values", &values}}) {
      pugi::xml_node child = node.append_child(name);
      child.append_attribute("length") = content->size();
      child.text() = content->c_str();
    }
  }

  static void write_cpu_kind(pugi::xml_node topology, const CpuKind& kind) {
    pugi::xml_node node = topology.append_child("cpukind");
    node.append_attribute("cpuset") = kind.cpus.mask().c_str();
    if (kind.efficiency >= 0) node.append_attribute("forced_efficiency") = kind.efficiency;
    add_infos(node, kind.infos);
  }

  const Machine& machine_;
  const Index index_;
  const std::string* details_ = nullptr;
  CpuSet given_;
  bool pus_ = false;
  std::uint64_t made_ = 0;  // number of objects that are not parts
};

Machine read_root(const pugi::xml_node& topology) {
  const std::string_view version = text_of(topology, "version");
  const std::string_view major = version.substr(0, version.find('.'));
  TROUPE_CHECK(major.empty() || major == "1" || major == "2", Code::unsupported, "written by hwloc ",
               major.substr(0, 8),
               ", this build reads up to 2; export it with `lstopo --export-xml-flags v2` or an lstopo 2");
  Machine machine = HwlocReader{}.read(topology);
  auto& infos = machine.parts[kRoot].infos;
  const auto at = std::find_if(infos.begin(), infos.end(), [](const Info& info) { return info.name == kDetails; });
  if (at != infos.end()) {
    const std::string details = at->value;
    infos.erase(at);
    detail::apply_details(machine, details, kDetails);
  }
  return machine;
}

}  // namespace

Machine machine_from_hwloc_xml(std::string_view text, std::string_view source) {
  pugi::xml_document document;
  detail::parse_xml(document, text, source);
  return with_context(source, [&] {
    Machine machine = read_root(document.child("topology"));
    check(machine, "what it describes");
    return machine;
  });
}

std::string to_hwloc_xml(const Machine& machine) {
  const std::string plain = HwlocWriter{machine}.write({});
  const std::string details = detail::details_json(machine, machine_from_hwloc_xml(plain, "what was written"));
  return details.empty() ? plain : HwlocWriter{machine}.write(details);
}

}  // namespace troupe::topology
