#include "runtime/topology/measurements.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "runtime/base/detail/json.hpp"
#include "runtime/base/detail/with_context.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/user_cache.hpp"
#include "runtime/topology/reading.hpp"

// One list of fields per type is used for writing and reading, so the output reads back as the same value. Files are
// small: a file above the limits below was not written by this program.
namespace troupe::topology {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kMeasurementsSchema = "troupe.measurements";
constexpr std::size_t kMostMeasurementBytes = std::size_t{4} << 20;
constexpr std::size_t kMostFigures = 65'536;  // of each kind
constexpr std::size_t kMostWordBytes = 256;

// The library's macro that repeats another one for each of its arguments, 63 at most.
#define TROUPE_FIELD(member) visit(#member, of.member);
#define TROUPE_FIELDS(Type, ...) \
  void each_field(auto&& visit, Type& of) { NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(TROUPE_FIELD, __VA_ARGS__)) }

TROUPE_FIELDS(Repeats, median, least, most)
TROUPE_FIELDS(CopyFigure, cores_numa, memory_numa, cores, bytes, bytes_per_second)
TROUPE_FIELDS(ComputeFigure, dtype, rows, layers, units, devices, threads, flops_per_second)
void each_field(auto&& visit, MessageFigure& of) {
  NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(TROUPE_FIELD, means, from, to, same_node, bytes, seconds, bytes_per_second))
  visit("bytes_per_second_both_ways", of.both_ways);
}
TROUPE_FIELDS(GpuFigure, bus, model, products, bytes_per_second, launch_seconds, kernel_seconds, compute, own)
TROUPE_FIELDS(GpuLinkFigure, from, to, bytes, seconds, bytes_per_second)
TROUPE_FIELDS(Measurements, date, versions, host, cpu_model, cores, busy, winograd, copies, compute, messages, gpus,
              gpu_links)

#undef TROUPE_FIELDS
#undef TROUPE_FIELD

struct FieldWriter {
  ordered_json& to;

  template <class T>
  void operator()(const char* name, T& value) const {
    if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string> ||
                  std::is_same_v<T, std::map<std::string, std::string>>)
      to[name] = value;
    else
      to[name] = object_of(value);
  }
  template <class T>
  void operator()(const char* name, std::vector<T>& values) const {
    ordered_json& all = to[name] = ordered_json::array();
    for (T& value : values) all.push_back(object_of(value));
  }
  template <class T>
  static ordered_json object_of(T& value) {
    ordered_json object = ordered_json::object();
    each_field(FieldWriter{object}, value);
    return object;
  }
};

struct FieldReader {
  const ordered_json& from;
  std::string path;

  template <class T>
  void operator()(const char* name, T& value) const {
    if (const auto at = from.find(name); at != from.end()) take(*at, path + '/' + name, value);
  }

 private:
  [[noreturn]] static void wrong(const std::string& where, const char* wanted) {
    fail(Code::invalid, text(where, " is not ", wanted));
  }
  template <class T>
  static void take(const ordered_json& from, const std::string& where, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      if (!from.is_boolean()) wrong(where, "true or false");
      value = from.get<bool>();
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!from.is_number()) wrong(where, "a number");
      value = from.get<T>();
      if (!std::isfinite(value) || value < 0) wrong(where, "a finite number of at least 0");
    } else if constexpr (std::is_integral_v<T>) {
      if (!from.is_number_unsigned() || !std::in_range<T>(from.get<std::uint64_t>()))
        wrong(where, "a whole number within its range");
      value = from.get<T>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!from.is_string() || from.get_ref<const std::string&>().size() > kMostWordBytes) wrong(where, "a short text");
      value = from.get<std::string>();
    } else {
      if (!from.is_object()) wrong(where, "an object");
      each_field(FieldReader{from, where}, value);
    }
  }
  static void take(const ordered_json& from, const std::string& where, Repeats& value) {
    if (!from.is_object()) wrong(where, "an object");
    each_field(FieldReader{from, where}, value);
    if (value.least > value.median || value.median > value.most)
      wrong(where, "a figure: least, median and most are in no order");
  }
  static void take(const ordered_json& from, const std::string& where, std::map<std::string, std::string>& words) {
    if (!from.is_object() || from.size() > kMostWordBytes) wrong(where, "an object of some words");
    for (const auto& [name, word] : from.items()) take(word, where + '/' + name.substr(0, 40), words[name]);
  }
  template <class T>
  static void take(const ordered_json& from, const std::string& where, std::vector<T>& values) {
    if (!from.is_array() || from.size() > kMostFigures) wrong(where, "an array of figures");
    for (const ordered_json& each : from) take(each, where, values.emplace_back());
  }
};

void check_counts(const std::vector<ComputeFigure>& figures, std::string_view source) {
  for (const ComputeFigure& each : figures)
    TROUPE_CHECK(each.rows > 0 && each.devices > 0 && each.threads > 0, Code::invalid, source,
                 ": a figure of no rows, devices or threads");
}

/// Checks the numbers that a prediction divides by.
void check_counts(const Measurements& measurements, std::string_view source) {
  for (const CopyFigure& each : measurements.copies)
    TROUPE_CHECK(each.cores > 0 && each.bytes > 0, Code::invalid, source, ": a copy by no core, or of no bytes");
  check_counts(measurements.compute, source);
  for (const GpuFigure& each : measurements.gpus) {
    TROUPE_CHECK(each.bytes_per_second.median > 0, Code::invalid, source, ": a GPU that copies nothing");
    check_counts(each.compute, source);
    check_counts(each.own, source);
  }
  for (const GpuLinkFigure& each : measurements.gpu_links)
    TROUPE_CHECK(each.bytes_per_second.median > 0, Code::invalid, source, ": a link between GPUs that copies nothing");
}

}  // namespace

Repeats repeats_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

std::string to_json(const Measurements& measurements) {
  ordered_json out{{"schema", kMeasurementsSchema}, {"version", kMeasurementsVersion}};
  Measurements copy = measurements;  // the list of fields is also used for reading, so it takes no constant
  each_field(FieldWriter{out}, copy);
  return json_text(out, 1) + '\n';
}

Measurements measurements_from_json(std::string_view text, std::string_view source) {
  TROUPE_CHECK(text.size() <= kMostMeasurementBytes, Code::invalid, source, " has ", text.size(), " bytes; at most ",
               kMostMeasurementBytes, " are read");
  const ordered_json json = json_from(text);
  TROUPE_CHECK(!json.is_discarded(), Code::invalid, source,
               ": no JSON, or not all of it; `rttopo bench` makes such a file");
  const auto is = [&](const char* name, const ordered_json& value) {
    return json.is_object() && json.contains(name) && json[name] == value;
  };
  TROUPE_CHECK(is("schema", kMeasurementsSchema), Code::invalid, source,
               ": these are no measurements (their \"schema\" is not \"", kMeasurementsSchema,
               "\"); `rttopo bench` makes such a file");
  TROUPE_CHECK(is("version", kMeasurementsVersion), Code::invalid, source, ": written in another version of ",
               kMeasurementsSchema, "; this build reads version ", kMeasurementsVersion, ": run `rttopo bench` again");
  Measurements measurements;
  with_context(source, [&] { each_field(FieldReader{json, ""}, measurements); });
  check_counts(measurements, source);
  return measurements;
}

std::string measurements_file(const std::string& host) {
  const std::string folder = user_cache_folder();
  if (folder.empty()) return {};
  std::string name = host.empty() ? "host" : host;
  std::replace(name.begin(), name.end(), '/', '_');
  return folder + "/measurements/" + name + ".json";
}

std::optional<Measurements> read_measurements(const std::string& file) {
  std::error_code error;
  if (file.empty() || !std::filesystem::exists(file, error)) return std::nullopt;
  return measurements_from_json(read_topology_file(file), file);
}

}  // namespace troupe::topology
