#include "runtime/topology/machine_json.hpp"

#include <array>
#include <nlohmann/json.hpp>
#include <type_traits>

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

/// Chooses the overload of Schema::schema_of() for a type.
template <class T>
struct Kind {};

template <class X>
class Schema {
 public:
  explicit Schema(ordered_json& properties) : properties_(properties) {}
  template <class T>
  void operator()(const char* name, T X::*) {
    properties_[name] = schema_of(Kind<T>{});
  }

 private:
  template <class T>
  static ordered_json schema_of(Kind<T>) {
    if constexpr (std::is_enum_v<T>) {
      return {{"enum", Words<T>::kAll}};
    } else if constexpr (std::is_same_v<T, bool>) {
      return {{"type", "boolean"}};
    } else if constexpr (std::is_floating_point_v<T>) {
      return {{"type", "number"}};
    } else if constexpr (std::is_unsigned_v<T>) {
      return {{"type", "integer"}, {"minimum", 0}};
    } else if constexpr (std::is_integral_v<T>) {
      return {{"type", "integer"}};
    } else if constexpr (std::is_same_v<T, std::string>) {
      return {{"type", "string"}};
    } else if constexpr (std::is_same_v<T, CpuSet>) {
      return {{"type", "string"}, {"pattern", "^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"}};
    } else if constexpr (std::is_same_v<T, Info>) {
      return {{"type", "array"}, {"items", {{"type", "string"}}}, {"minItems", 2}, {"maxItems", 2}};
    } else {
      ordered_json object{{"type", "object"}, {"properties", ordered_json::object()}, {"additionalProperties", false}};
      Schema<T> schema{object["properties"]};
      fields(schema, Of<T>{});
      return object;
    }
  }
  template <class T>
  static ordered_json schema_of(Kind<std::optional<T>>) {
    return schema_of(Kind<T>{});
  }
  template <class T>
  static ordered_json schema_of(Kind<std::vector<T>>) {
    return {{"type", "array"}, {"items", schema_of(Kind<T>{})}};
  }
  template <class K>
  static ordered_json schema_of(Kind<std::map<K, std::uint64_t>>) {
    return {{"type", "object"}, {"additionalProperties", schema_of(Kind<std::uint64_t>{})}};
  }
  ordered_json& properties_;
};

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

}  // namespace

std::string json_schema() {
  ordered_json counts{{"type", "object"}, {"properties", ordered_json::object()}, {"additionalProperties", false}};
  for (const char* const name : {"packages", "numa", "cores", "pus", "gpu_pci", "nic_pci", "nvlink_or_xgmi"}) {
    counts["properties"][name] = {{"type", "integer"}, {"minimum", 0}};
    counts["required"].push_back(name);
  }
  ordered_json out{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                   {"title", "A machine's topology, as `rttopo show --json` prints it"},
                   {"type", "object"},
                   {"required", {"schema", "version", "counts"}},
                   {"additionalProperties", false}};
  ordered_json& properties = out["properties"];
  properties = {{"schema", {{"const", kJsonSchema}}}, {"version", {{"const", kJsonVersion}}}, {"counts", counts}};
  Schema<Machine> schema{properties};
  fields(schema, Of<Machine>{});
  properties["measurements"] = {{"type", "object"}};  // of `rttopo bench`, where there are some
  return out.dump(1) + '\n';
}

void check_json_depth(std::string_view text, std::string_view source) {
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

std::string to_json(const Machine& machine, int indent) {
  ordered_json out;
  out["schema"] = kJsonSchema;
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
  check_json_depth(text, source);
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
  TROUPE_CHECK(is("schema", kJsonSchema), Code::invalid, source,
               ": this JSON is not a topology (its \"schema\" is not \"", kJsonSchema, "\")");
  TROUPE_CHECK(is("version", kJsonVersion), Code::invalid, source, ": this topology was written in another version of ",
               kJsonSchema, "; this build reads version ", kJsonVersion);
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
