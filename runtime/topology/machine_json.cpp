#include "runtime/topology/machine_json.hpp"

#include <nlohmann/json.hpp>
#include <type_traits>

#include "runtime/base/detail/json.hpp"
#include "runtime/base/detail/with_context.hpp"
#include "runtime/base/error.hpp"
#include "runtime/topology/detail/bounds.hpp"
#include "runtime/topology/detail/details.hpp"
#include "runtime/topology/detail/machine_fields.hpp"

// Writer omits a field that equals a new object's, and Reader keeps a new object's value for a missing field. So the
// output reads back as the same value.
namespace troupe::topology {
namespace {

using detail::fields;
using detail::Of;
using detail::Words;
using nlohmann::ordered_json;

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
void fields(V& v, Of<Details>) {
  v("changed", &Details::changed), v("machine", &Details::machine);
}

template <class X>
class Writer;

/// Values as JSON. Not in Writer: each type's Writer would have functions of its own.
struct Written {
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
};

template <class X>
class Writer {
 public:
  Writer(ordered_json& to, const X& from) : to_(to), from_(from) {}
  template <class T>
  void operator()(const char* name, T X::*member) {
    if (from_.*member != fresh_.*member) to_[name] = Written::json_of(from_.*member);
  }

 private:
  ordered_json& to_;
  const X& from_;
  const X fresh_{};
};

template <class X>
class Reader;

/// Takes values from JSON; not in Reader, as above.
class Taken {
 public:
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
      Reader<T> reader{from, path, *this, value};
      fields(reader, Of<T>{});
    }
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

 private:
  [[noreturn]] static void wrong(const std::string& path, const char* wanted) {
    fail(Code::invalid, text(path, " is not ", wanted));
  }
  void spend(const std::string& path) {
    if (left_-- == 0) fail(Code::invalid, text(path, ": there are more than ", detail::kMostInfos, " values"));
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

  std::size_t left_ = detail::kMostInfos;
};

template <class X>
class Reader {
 public:
  Reader(const ordered_json& from, std::string path, Taken& taken, X& to)
      : from_(from), path_(std::move(path)), taken_(taken), to_(to) {}
  template <class T>
  void operator()(const char* name, T X::*member) {
    if (const auto at = from_.find(name); at != from_.end()) taken_.take(*at, path_ + '/' + name, to_.*member);
  }

 private:
  const ordered_json& from_;
  const std::string path_;
  Taken& taken_;
  X& to_;
};

}  // namespace

std::string to_json(const Machine& machine, int indent) {
  ordered_json out;
  out["schema"] = kJsonSchema;
  out["version"] = kJsonVersion;
  const Counts counts = count(machine);
  for (const auto& [name, member] : kCounts) out["counts"][name] = counts.*member;
  Writer<Machine> writer{out, machine};
  fields(writer, Of<Machine>{});
  return json_text(out, indent) + '\n';
}

namespace {

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

ordered_json parsed(std::string_view text, std::string_view source, std::size_t most_bytes = detail::kMostBytes) {
  TROUPE_CHECK(text.size() <= most_bytes, Code::invalid, source, " has ", text.size(), " bytes; at most ", most_bytes,
               " are read");
  check_depth(text, source);
  ordered_json json = json_from(text);
  TROUPE_CHECK(!json.is_discarded(), Code::invalid, source, ": no JSON, or not all of it");
  return json;
}

bool has(const ordered_json& json, std::string_view name, const ordered_json& value) {
  return json.is_object() && json.contains(name) && json[name] == value;
}

template <class X>
X read_fields(const ordered_json& json, std::string_view source) {
  return with_context(source, [&] {
    X value;
    Taken taken;
    Reader<X> reader{json, "", taken, value};
    fields(reader, Of<X>{});
    return value;
  });
}

Machine machine_of(const ordered_json& json, std::string_view source) {
  TROUPE_CHECK(has(json, "schema", kJsonSchema), Code::invalid, source,
               ": this JSON is not a topology (its \"schema\" is not \"", kJsonSchema, "\")");
  TROUPE_CHECK(has(json, "version", kJsonVersion), Code::invalid, source,
               ": this topology was written in another version of ", kJsonSchema, "; this build reads version ",
               kJsonVersion);
  Machine machine = read_fields<Machine>(json, source);
  TROUPE_CHECK(machine.parts.size() <= detail::kMostParts, Code::invalid, source, ": more than ", detail::kMostParts,
               " parts");
  check(machine, source);
  return machine;
}

/// One of the machines of a cluster.
MachineCount counted_machine(const ordered_json& json, std::string_view source) {
  const bool is_counted = json.is_object() && json.contains("machine") && json.contains("source") &&
                          json["source"].is_string() && json.contains("count") && json["count"].is_number_unsigned() &&
                          json["count"].get<std::uint64_t>() >= 1 &&
                          json["count"].get<std::uint64_t>() <= kMostMachines;
  TROUPE_CHECK(is_counted, Code::invalid, source, ": a machine has no count or no source");
  MachineCount counted{.source = json["source"].get<std::string>(), .count = json["count"].get<std::uint32_t>()};
  counted.machine = machine_of(json["machine"], text(source, ", ", counted.source));
  return counted;
}

}  // namespace

Machine machine_from_json(std::string_view text, std::string_view source) {
  return machine_of(parsed(text, source), source);
}

std::vector<MachineCount> machines_from_json(std::string_view text, std::string_view source) {
  const ordered_json json = parsed(text, source, detail::kMostClusterBytes);
  std::vector<MachineCount> machines;
  if (!has(json, "schema", "troupe.cluster")) {
    machines.push_back({std::string{source}, 1, machine_of(json, source)});
    return machines;
  }
  const bool is_known = has(json, "version", 1) && json.contains("machines") && json["machines"].is_array();
  TROUPE_CHECK(is_known && !json["machines"].empty(), Code::invalid, source,
               ": there are no machines of version 1 of troupe.cluster");
  for (const ordered_json& each : json["machines"]) machines.push_back(counted_machine(each, source));
  return machines;
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
  return json_text(out);
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
