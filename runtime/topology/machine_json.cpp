#include "runtime/topology/machine_json.hpp"

#include <array>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "runtime/base/error.hpp"
#include "runtime/topology/detail/bounds.hpp"
#include "runtime/topology/detail/details.hpp"

// One list of fields per type (`fields` below) is used in both directions: Writer omits a field that equals a new
// object's, and Reader keeps a new object's value for a missing field. So the output reads back as the same value, and
// a field is added in one place.
namespace troupe::topology {
namespace {

using nlohmann::ordered_json;
constexpr std::string_view kSchema = "troupe.topology";

template <class T>
struct Of {};

template <class E>
struct Words;
template <>
struct Words<CacheAttributes::Holds> {
  static constexpr std::array<std::string_view, 3> kAll{"both", "data", "instructions"};
};
template <>
struct Words<OsDevice::Kind> {
  static constexpr std::array<std::string_view, 7> kAll{"block", "gpu",         "network", "openfabrics",
                                                        "dma",   "coprocessor", "memory"};
};
template <>
struct Words<GpuState> {
  static constexpr std::array<std::string_view, 4> kAll{"unknown", "ok", "lost", "no_permission"};
};
template <>
struct Words<AcceleratorLink::Kind> {
  static constexpr std::array<std::string_view, 3> kAll{"nvlink", "xgmi", "c2c"};
};
template <>
struct Words<PartKind> {
  static constexpr std::array<std::string_view, 14> kAll{
      "machine", "package", "die",         "group",      "numa",       "memory_cache", "cache",
      "core",    "pu",      "host_bridge", "pci_bridge", "pci_switch", "pci_function", "misc"};
};

template <class V>
void fields(V& v, Of<PciLink>) {
  v("gigatransfers", &PciLink::gigatransfers), v("lanes", &PciLink::lanes), v("gigabytes", &PciLink::gigabytes);
}
template <class V>
void fields(V& v, Of<CacheAttributes>) {
  v("level", &CacheAttributes::level), v("holds", &CacheAttributes::holds),
      v("line_bytes", &CacheAttributes::line_bytes), v("ways", &CacheAttributes::ways);
}
template <class V>
void fields(V& v, Of<PciAttributes>) {
  v("bus", &PciAttributes::bus), v("below", &PciAttributes::below), v("class", &PciAttributes::class_code),
      v("vendor", &PciAttributes::vendor), v("device", &PciAttributes::device);
  v("subsystem_vendor", &PciAttributes::subsystem_vendor), v("subsystem_device", &PciAttributes::subsystem_device),
      v("revision", &PciAttributes::revision);
  v("now", &PciAttributes::now), v("possible", &PciAttributes::possible),
      v("physical_function", &PciAttributes::physical_function);
  v("acs_redirect", &PciAttributes::acs_redirect);
}
template <class V>
void fields(V& v, Of<OsDevice>) {
  v("kind", &OsDevice::kind), v("name", &OsDevice::name), v("backend", &OsDevice::backend),
      v("infos", &OsDevice::infos);
}
template <class V>
void fields(V& v, Of<Part>) {
  v("kind", &Part::kind), v("parent", &Part::parent), v("os_index", &Part::os_index), v("name", &Part::name),
      v("subtype", &Part::subtype);
  v("bytes", &Part::bytes), v("cache", &Part::cache), v("pci", &Part::pci), v("cpus", &Part::cpus),
      v("faces", &Part::os_devices);
  v("infos", &Part::infos);
}
template <class V>
void fields(V& v, Of<Gpu>) {
  v("part", &Gpu::part), v("vendor", &Gpu::vendor), v("model", &Gpu::model), v("memory_bytes", &Gpu::memory_bytes);
  v("architecture", &Gpu::architecture), v("uuid", &Gpu::uuid), v("serial", &Gpu::serial),
      v("firmware", &Gpu::firmware);
  v("state", &Gpu::state), v("utilization_percent", &Gpu::utilization_percent), v("clock_mhz", &Gpu::clock_mhz);
  v("most_clock_mhz", &Gpu::most_clock_mhz), v("cores", &Gpu::cores);
  v("most_memory_clock_mhz", &Gpu::most_memory_clock_mhz), v("memory_bus_bits", &Gpu::memory_bus_bits);
  v("throttle_reasons", &Gpu::throttle_reasons);
  v("uncorrected_errors", &Gpu::uncorrected_errors), v("mig", &Gpu::mig), v("infos", &Gpu::infos);
}
template <class V>
void fields(V& v, Of<Interface>) {
  v("name", &Interface::name), v("address", &Interface::address), v("bits_per_second", &Interface::bits_per_second),
      v("mtu_bytes", &Interface::mtu_bytes);
  v("up", &Interface::up);
}
template <class V>
void fields(V& v, Of<RdmaPort>) {
  v("device", &RdmaPort::device), v("port", &RdmaPort::port), v("active", &RdmaPort::active),
      v("link_layer", &RdmaPort::link_layer);
  v("bits_per_second", &RdmaPort::bits_per_second), v("mtu_bytes", &RdmaPort::mtu_bytes), v("guid", &RdmaPort::guid),
      v("rising", &RdmaPort::rising);
  v("infos", &RdmaPort::infos);
}
template <class V>
void fields(V& v, Of<Nic>) {
  v("part", &Nic::part), v("driver", &Nic::driver), v("firmware", &Nic::firmware), v("interfaces", &Nic::interfaces);
  v("ports", &Nic::ports);
}
template <class V>
void fields(V& v, Of<AcceleratorLink>) {
  v("from", &AcceleratorLink::from), v("kind", &AcceleratorLink::kind), v("to", &AcceleratorLink::to),
      v("to_class", &AcceleratorLink::to_class), v("lanes", &AcceleratorLink::lanes);
  v("lanes_down", &AcceleratorLink::lanes_down), v("bytes_per_second", &AcceleratorLink::bytes_per_second);
}
template <class V>
void fields(V& v, Of<Distances>) {
  v("name", &Distances::name), v("kind", &Distances::kind), v("parts", &Distances::parts),
      v("values", &Distances::values);
}
template <class V>
void fields(V& v, Of<CpuKind>) {
  v("cpus", &CpuKind::cpus), v("efficiency", &CpuKind::efficiency), v("infos", &CpuKind::infos);
}
template <class V>
void fields(V& v, Of<Limits>) {
  v("cpu_quota", &Limits::cpu_quota), v("memory_bytes", &Limits::memory_bytes),
      v("locked_bytes", &Limits::locked_bytes);
  v("open_files", &Limits::open_files), v("allowed", &Limits::allowed);
}
template <class V>
void fields(V& v, Of<SystemFacts>) {
  v("kernel", &SystemFacts::kernel), v("gpu_driver", &SystemFacts::gpu_driver), v("governor", &SystemFacts::governor);
  v("numa_balancing", &SystemFacts::numa_balancing), v("clock_synchronized", &SystemFacts::clock_synchronized);
  v("peer_memory", &SystemFacts::peer_memory), v("iommu_translates", &SystemFacts::iommu_translates);
  v("gpus_without_file", &SystemFacts::gpus_without_file), v("nccl_file", &SystemFacts::nccl_file);
  v("nccl_file_not_found", &SystemFacts::nccl_file_not_found);
}
template <class V>
void fields(V& v, Of<ThreadPlace>) {
  v("name", &ThreadPlace::name), v("cpus", &ThreadPlace::cpus), v("planned", &ThreadPlace::planned);
}
template <class V>
void fields(V& v, Of<Placement>) {
  v("threads", &Placement::threads), v("planned_numa", &Placement::planned_numa), v("pages", &Placement::pages),
      v("memory_refused", &Placement::memory_refused);
  v("planned_devices", &Placement::planned_devices), v("chosen_devices", &Placement::chosen_devices),
      v("open_devices", &Placement::open_devices);
}
template <class V>
void fields(V& v, Of<RankPlace>) {
  v("rank", &RankPlace::rank), v("pid", &RankPlace::pid), v("cpus", &RankPlace::cpus),
      v("numa_bytes", &RankPlace::numa_bytes), v("gpu", &RankPlace::gpu);
  v("nic", &RankPlace::nic), v("transports", &RankPlace::transports), v("placement", &RankPlace::placement);
}
/// A part of another machine, with its index there.
struct ChangedPart {
  PartIndex index = 0;
  Part part;
  friend bool operator==(const ChangedPart&, const ChangedPart&) = default;
};
template <class V>
void fields(V& v, Of<ChangedPart>) {
  v("index", &ChangedPart::index), v("part", &ChangedPart::part);
}
/// The difference between a machine and its copy in another format. Tables are complete; parts are complete only if
/// their number differs.
struct Details {
  std::vector<ChangedPart> changed;
  Machine machine;
  friend bool operator==(const Details&, const Details&) = default;
};
template <class V>
void fields(V& v, Of<Machine>);
template <class V>
void fields(V& v, Of<Details>) {
  v("changed", &Details::changed), v("machine", &Details::machine);
}
template <class V>
void fields(V& v, Of<Machine>) {
  v("host", &Machine::host), v("parts", &Machine::parts), v("gpus", &Machine::gpus), v("nics", &Machine::nics),
      v("links", &Machine::links);
  v("distances", &Machine::distances), v("cpu_kinds", &Machine::cpu_kinds), v("limits", &Machine::limits),
      v("system", &Machine::system);
  v("ranks", &Machine::ranks);
}

template <class X>
class Writer {
 public:
  Writer(ordered_json& to, const X& from) : to_(to), from_(from) {}
  template <class T>
  void operator()(const char* name, T X::*member) {
    if (from_.*member != fresh_.*member) to_[name] = json_of(from_.*member);
  }

 private:
  template <class T>
  static ordered_json json_of(const std::optional<T>& value) {
    return json_of(*value);  // an empty value equals that of a new object, which is omitted
  }
  template <class T>
  static ordered_json json_of(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      return Words<T>::kAll[static_cast<std::size_t>(value)];
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return value;
    } else if constexpr (std::is_same_v<T, CpuSet>) {
      return value.list();
    } else if constexpr (std::is_same_v<T, std::vector<Info>>) {
      ordered_json pairs = ordered_json::array();
      for (const Info& info : value) pairs.push_back({info.name, info.value});
      return pairs;
    } else {
      ordered_json object = ordered_json::object();
      Writer<T> writer{object, value};
      fields(writer, Of<T>{});
      return object;
    }
  }
  template <class T>
  static ordered_json json_of(const std::vector<T>& list) requires(!std::is_same_v<T, Info>) {
    ordered_json all = ordered_json::array();
    for (const T& each : list) all.push_back(json_of(each));
    return all;
  }
  template <class K>
  static ordered_json json_of(const std::map<K, std::uint64_t>& map) {
    ordered_json object = ordered_json::object();
    for (const auto& [key, value] : map) object[text(key)] = value;
    return object;
  }
  ordered_json& to_;
  const X& from_;
  const X fresh_{};
};

template <class X>
class Reader {
 public:
  Reader(const ordered_json& from, std::string path, std::size_t& budget, X& to)
      : from_(from), path_(std::move(path)), budget_(budget), to_(to) {}
  template <class T>
  void operator()(const char* name, T X::*member) {
    if (const auto at = from_.find(name); at != from_.end()) take(*at, path_ + '/' + name, to_.*member);
  }

 private:
  [[noreturn]] static void wrong(const std::string& path, const char* wanted) {
    fail(Code::invalid, text(path, " is not ", wanted));
  }
  void spend(const std::string& path) {
    if (budget_-- == 0) fail(Code::invalid, text(path, ": there are more than ", detail::kMostInfos, " values"));
  }
  template <class T>
  void take(const ordered_json& from, const std::string& path, std::optional<T>& value) {
    take(from, path, value.emplace());
  }
  template <class T>
  void take(const ordered_json& from, const std::string& path, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      if (!from.is_boolean()) wrong(path, "true or false");
      value = from.get<bool>();
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!from.is_number()) wrong(path, "a number");
      value = from.get<T>();
    } else if constexpr (std::is_integral_v<T>) {
      take_whole(from, path, value);
    } else if constexpr (std::is_enum_v<T>) {
      if (!from.is_string()) wrong(path, "a word");
      take_word(from.get_ref<const std::string&>(), path, value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!from.is_string()) wrong(path, "a string");
      value = from.get<std::string>();
    } else if constexpr (std::is_same_v<T, CpuSet>) {
      if (!from.is_string()) wrong(path, "a list of processors");
      value = CpuSet::from_list(from.get_ref<const std::string&>());
    } else {
      if (!from.is_object()) wrong(path, "an object");
      Reader<T> reader{from, path, budget_, value};
      fields(reader, Of<T>{});
    }
  }
  template <class T>
  static void take_whole(const ordered_json& from, const std::string& path, T& value) {
    if (from.is_number_unsigned()) {
      const auto number = from.get<std::uint64_t>();
      if (std::in_range<T>(number)) return void(value = static_cast<T>(number));
    } else if (from.is_number_integer()) {
      const auto number = from.get<std::int64_t>();
      if (std::in_range<T>(number)) return void(value = static_cast<T>(number));
    }
    wrong(path, "a whole number within its range");
  }
  template <class T>
  static void take_word(const std::string& word, const std::string& path, T& value) {
    for (std::size_t i = 0; i < Words<T>::kAll.size(); ++i)
      if (Words<T>::kAll[i] == word) return void(value = static_cast<T>(i));
    fail(Code::invalid, text(path, ": unknown word \"", word.substr(0, 40), '"'));
  }
  void take(const ordered_json& from, const std::string& path, std::vector<Info>& infos) {
    if (!from.is_array()) wrong(path, "an array");
    for (const ordered_json& pair : from) {
      spend(path);
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
        wrong(path, "an array of pairs of a name and a value");
      infos.push_back({pair[0].get<std::string>(), pair[1].get<std::string>()});
    }
  }
  template <class T>
  void take(const ordered_json& from, const std::string& path,
            std::vector<T>& list) requires(!std::is_same_v<T, Info>) {
    if (!from.is_array()) wrong(path, "an array");
    list.clear();
    for (const ordered_json& each : from) {
      spend(path);
      take(each, path, list.emplace_back());
    }
  }
  template <class K>
  void take(const ordered_json& from, const std::string& path, std::map<K, std::uint64_t>& map) {
    if (!from.is_object()) wrong(path, "an object");
    for (const auto& [name, value] : from.items()) {
      spend(path);
      K key{};
      if constexpr (std::is_same_v<K, std::string>) {
        key = name;
      } else {
        const auto numbers = CpuSet::from_list(name).numbers();
        if (numbers.size() != 1) wrong(path, "an object with numbers as names");
        key = numbers.front();
      }
      take_whole(value, path, map[key]);
    }
  }

  const ordered_json& from_;
  const std::string path_;
  std::size_t& budget_;
  X& to_;
};

/// Limits the depth of brackets, so that a parser's stack stays small.
void check_depth(std::string_view text, std::string_view source) {
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        quoted = false;
    } else if (text[i] == '"') {
      quoted = true;
    } else if (text[i] == '{' || text[i] == '[') {
      TROUPE_CHECK(++depth <= detail::kMostDepth, Code::invalid, source, ": brackets are nested more than ",
                   detail::kMostDepth, " deep");
    } else if ((text[i] == '}' || text[i] == ']') && depth > 0) {
      --depth;
    }
  }
}

}  // namespace

std::string to_json(const Machine& machine, int indent) {
  ordered_json out;
  out["schema"] = kSchema;
  out["version"] = kJsonVersion;
  const Counts counts = count(machine);
  out["counts"] = {{"packages", counts.packages},
                   {"numa", counts.numa},
                   {"cores", counts.cores},
                   {"pus", counts.pus},
                   {"gpu_pci", counts.gpu_pci},
                   {"nic_pci", counts.nic_pci},
                   {"nvlink_or_xgmi", counts.nvlink_or_xgmi}};
  Writer<Machine> writer{out, machine};
  fields(writer, Of<Machine>{});
  return out.dump(indent, ' ', false, ordered_json::error_handler_t::replace) + '\n';
}

namespace {

ordered_json parsed(std::string_view text, std::string_view source) {
  TROUPE_CHECK(text.size() <= detail::kMostBytes, Code::invalid, source, " has ", text.size(), " bytes; at most ",
               detail::kMostBytes, " are read");
  check_depth(text, source);
  try {
    return ordered_json::parse(text);
  } catch (const ordered_json::exception&) {
    fail(Code::invalid, troupe::text(source, ": no JSON, or not all of it"));
  }
}

template <class X>
X read_fields(const ordered_json& json, std::string_view source) {
  X value;
  std::size_t budget = detail::kMostInfos;
  try {
    Reader<X> reader{json, "", budget, value};
    fields(reader, Of<X>{});
  } catch (const Error& error) {
    fail(error.code(), text(source, ": ", error.what()));
  }
  return value;
}

}  // namespace

Machine machine_from_json(std::string_view text, std::string_view source) {
  const ordered_json json = parsed(text, source);
  const auto is = [&](const char* name, const ordered_json& value) {
    return json.is_object() && json.contains(name) && json[name] == value;
  };
  TROUPE_CHECK(is("schema", kSchema), Code::invalid, source, ": this JSON is not a topology (its \"schema\" is not \"",
               kSchema, "\")");
  TROUPE_CHECK(is("version", kJsonVersion), Code::invalid, source, ": this topology was written in another version of ",
               kSchema, "; this build reads version ", kJsonVersion);
  Machine machine = read_fields<Machine>(json, source);
  TROUPE_CHECK(machine.parts.size() <= detail::kMostParts, Code::invalid, source, ": more than ", detail::kMostParts,
               " parts");
  check(machine, source);
  return machine;
}

std::string detail::details_json(const Machine& whole, const Machine& seen) {
  if (whole == seen) return {};
  Details details{.machine = whole};
  if (whole.parts.size() == seen.parts.size()) {
    for (PartIndex i = 0; i < whole.parts.size(); ++i)
      if (whole.parts[i] != seen.parts[i]) details.changed.push_back({i, whole.parts[i]});
    details.machine.parts = {Part{}};
  }
  ordered_json out = ordered_json::object();
  Writer<Details> writer{out, details};
  fields(writer, Of<Details>{});
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

void detail::apply_details(Machine& seen, std::string_view json, std::string_view source) {
  const ordered_json object = parsed(json, source);
  TROUPE_CHECK(object.is_object(), Code::invalid, source, ": no object");
  auto details = read_fields<Details>(object, source);
  if (details.machine.parts.size() == 1) details.machine.parts = std::move(seen.parts);
  for (ChangedPart& changed : details.changed) {
    TROUPE_CHECK(changed.index < details.machine.parts.size(), Code::invalid, source, ": there is no part ",
                 changed.index);
    details.machine.parts[changed.index] = std::move(changed.part);
  }
  seen = std::move(details.machine);
}

}  // namespace troupe::topology
