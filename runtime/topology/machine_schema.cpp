#include "runtime/topology/machine_schema.hpp"

#include <nlohmann/json.hpp>
#include <type_traits>

#include "runtime/base/detail/json.hpp"
#include "runtime/topology/detail/machine_fields.hpp"
#include "runtime/topology/machine_json.hpp"

namespace troupe::topology {
namespace {

using detail::fields;
using detail::Of;
using detail::Words;
using nlohmann::ordered_json;

/// Adds a type's fields to the properties of its schema.
struct SchemaFields;

/// Chooses the overload of schema_of() for a type.
template <class T>
struct Kind {};

struct Schemas {
  template <class T>
  static ordered_json schema_of(Kind<T>);
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
};

struct SchemaFields {
  ordered_json& properties;

  template <class X, class T>
  void operator()(const char* name, T X::*) {
    properties[name] = Schemas::schema_of(Kind<T>{});
  }
};

template <class T>
ordered_json Schemas::schema_of(Kind<T>) {
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
    SchemaFields of_type{object["properties"]};
    fields(of_type, Of<T>{});
    return object;
  }
}

}  // namespace

std::string json_schema() {
  ordered_json counts{{"type", "object"}, {"properties", ordered_json::object()}, {"additionalProperties", false}};
  for (const auto& [name, member] : kCounts) {
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
  SchemaFields of_machine{properties};
  fields(of_machine, Of<Machine>{});
  properties["measurements"] = {{"type", "object"}};  // of `rttopo bench`, where there are some
  return json_text(out, 1) + '\n';
}

}  // namespace troupe::topology
