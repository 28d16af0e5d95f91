#include "runtime/config/config.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <tuple>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "runtime/config/detail/contradictions.hpp"
#include "runtime/config/detail/groups.hpp"
#include "runtime/config/detail/schema.hpp"
#include "runtime/config/detail/text_file.hpp"
#include "runtime/config/detail/toml.hpp"

namespace troupe {
namespace {

using detail::Finding;
using detail::Given;
using detail::Place;
using detail::SettingKey;
using detail::TomlValue;

constexpr std::size_t kMostConfigurationBytes = 1 << 20;
constexpr std::size_t kMostProblems = 10;

std::string shown_key(std::string_view key) {
  constexpr std::size_t kMost = 60;
  const bool bare = std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || c == '-' ||
           c == '.';
  });
  if (key.size() > kMost)
    return detail::in_quotes(text(key.substr(0, 20), "...")) + text(" (", key.size(), " characters)");
  return bare && !key.empty() ? std::string{key} : detail::in_quotes(key);
}

/// All errors, reported together in the order of the text, overrides last.
class Problems {
 public:
  void add(Place place, std::string_view origin, std::string text) {
    add(place, origin, detail::invalid(std::move(text)));
  }
  void add(Place place, std::string_view origin, const Finding& finding) {
    problems_.push_back(
        {{place.line == 0 ? ~0u : place.line, place.column}, finding.code, text(origin, ": ", finding.text)});
  }
  bool empty() const noexcept { return problems_.empty(); }
  bool full() const noexcept { return problems_.size() > kMostProblems; }
  void throw_if_any() {
    if (problems_.empty()) return;
    std::stable_sort(problems_.begin(), problems_.end(), [](const auto& a, const auto& b) {
      return std::tie(a.place.line, a.place.column) < std::tie(b.place.line, b.place.column);
    });
    Code code = Code::unsupported;
    std::string all;
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      if (i == kMostProblems) {
        all += "\n(and more)";
        break;
      }
      (all += i == 0 ? "" : "\n") += problems_[i].text;
      if (problems_[i].code != Code::unsupported) code = problems_[i].code;
    }
    fail(code, all);
  }

 private:
  struct Problem {
    Place place;
    Code code;
    std::string text;
  };
  std::vector<Problem> problems_;
};

/// Collects values from the file and from overrides, then checks the values that take effect.
class Reading {
 public:
  explicit Reading(std::string name) : name_(std::move(name)) {}

  void read_document(const TomlValue& document) {
    for (const auto& entry : document.entries) {
      if (problems_.full()) return;
      read_top_entry(entry);
    }
  }

  void read_override(const std::string& assignment) {
    const auto equals = assignment.find('=');
    const std::string key{trimmed(std::string_view{assignment}.substr(0, equals))};
    const std::string origin = text("--set ", key.empty() ? detail::in_quotes(assignment) : shown_key(key));
    if (equals == std::string::npos || key.empty()) {
      return problems_.add({}, origin, "has no key and value; write --set data.batch=100");
    }
    const std::string value_text{trimmed(std::string_view{assignment}.substr(equals + 1))};
    const SettingKey* setting = detail::find_setting(detail::canonical(key));
    if (setting == nullptr && detail::find_planned(key) == nullptr) return add_unknown({}, origin, key);
    using K = detail::ValueKind;
    const K kind = setting == nullptr ? K::boolean : setting->takes.kind;
    const bool wants_text = kind == K::text || kind == K::choice || kind == K::hosts;
    if (auto value = override_value(value_text, wants_text)) {
      give(key, {std::move(*value), origin, {}});
    } else {
      const std::string_view cure =
          value_text.empty()
              ? "write one after the =, without spaces, or leave --set out"
              : "lists are written [500, 500], text in quotes when it holds brackets or quotes, and in UTF-8";
      problems_.add({}, origin,
                    text("cannot read ", detail::in_quotes(value_text.substr(0, 60)), " as a value; ", cure));
    }
  }

  Configuration finish() {
    Configuration out;
    out.file = name_;
    const auto folder = std::filesystem::path{name_}.parent_path().string();
    out.folder = folder.empty() ? "." : folder;
    for (const auto& [key, given] : given_) {
      if (problems_.full()) break;
      check(key, given, out.settings);
    }
    out.settings.rule = with_momentum(out.settings.rule, given_.contains("optimizer.momentum"));
    if (!given_.contains("data.read_s"))
      out.settings.data.read = std::min(out.settings.data.read, out.settings.faults.exchange / 2);
    if (!given_.contains("faults.dead_ms"))
      out.settings.faults.dead = std::min(out.settings.faults.dead, out.settings.faults.exchange);
    settle_groups(out.settings);
    out.settings.model.onnx_file = path_of("model.onnx", out.settings.model.onnx, out.folder);
    if (problems_.empty()) {
      for (const auto& [key, what] : detail::contradictions_of(out.settings, given_)) {
        const Given& given = given_.find(key)->second;
        problems_.add(given.place, given.origin, what);
      }
    }
    problems_.throw_if_any();
    for (const SettingKey& key : detail::setting_keys()) {
      const auto at = given_.find(key.name);
      out.values.push_back(
          {std::string{key.name}, key.show(out.settings), at == given_.end() ? "default" : at->second.origin});
    }
    return out;
  }

 private:
  /// TOML, or the unquoted words that shells leave. If the key takes text, anything unquoted is text: report.dir=2024.
  static std::optional<TomlValue> override_value(const std::string& written, bool wants_text) {
    const bool structured = !written.empty() && std::string_view{"\"'[{"}.find(written[0]) != std::string_view::npos;
    if (structured || !wants_text) {
      if (auto value = detail::parse_toml_value(written)) return value;
      if (structured || written.empty()) return std::nullopt;
    }
    return detail::parse_toml_value(detail::in_quotes(written));  // empty if it is not UTF-8
  }

  /// From the working directory, of a file that a key names: those in app.toml are beside it.
  std::string path_of(std::string_view key, const std::string& file, const std::string& folder) const {
    const auto given = given_.find(key);
    const bool beside = given != given_.end() && !given->second.origin.starts_with("--set") && folder != ".";
    return beside && std::filesystem::path{file}.is_relative() && !file.empty() ? text(folder, '/', file) : file;
  }

  std::string at(Place place) const { return text(name_, ":", place.line, ":", place.column); }

  void add_unknown(Place place, std::string_view origin, std::string_view key) {
    problems_.add(place, origin, text("unknown key ", shown_key(key), "; ", detail::advise(key)));
  }

  void read_top_entry(const TomlValue::Entry& entry) {
    const auto& known = detail::sections();
    const bool is_section = std::find(known.begin(), known.end(), entry.key) != known.end();
    const auto kind = entry.value.kind;
    if (is_section && kind != TomlValue::Kind::table) {
      const bool repeated = kind == TomlValue::Kind::array && !entry.value.items.empty() &&
                            entry.value.items[0].kind == TomlValue::Kind::table;
      return problems_.add(
          entry.place, at(entry.place),
          text(entry.key, " is a section: write it once, as [", entry.key, "] on a line of its own; found ",
               repeated ? text("[[", entry.key, "]]") : describe(entry.value)));
    }
    if (kind != TomlValue::Kind::table) return add_unknown(entry.place, at(entry.place), entry.key);
    if (!is_section && entry.value.entries.empty()) {
      return problems_.add(entry.place, at(entry.place),
                           text("unknown section ", shown_key(entry.key), "; ", detail::advise(entry.key)));
    }
    for (const auto& leaf : entry.value.entries) {
      if (problems_.full()) return;
      read_leaf(text(entry.key, ".", leaf.key), leaf);
    }
  }

  void read_leaf(const std::string& key, const TomlValue::Entry& leaf) {
    if (detail::find_setting(key) == nullptr && detail::find_planned(key) == nullptr) {
      return add_unknown(leaf.place, at(leaf.place), key);
    }
    const Place place = leaf.value.place.line == 0 ? leaf.place : leaf.value.place;
    give(key, {leaf.value, at(place), place});
  }

  /// Stores a value, or the values of a table that stands for it. A table in an override replaces the file's.
  void give(std::string_view key, Given given) {
    if (given.value.kind != TomlValue::Kind::table || !detail::takes_table(key)) {
      given_.insert_or_assign(std::string{detail::canonical(key)}, std::move(given));
      return;
    }
    if (given.place.line == 0)
      std::erase_if(given_, [&](const auto& earlier) { return earlier.first.starts_with(text(key, '.')); });
    for (const TomlValue::Entry& entry : given.value.entries) {
      const std::string inner = text(key, ".", entry.key);
      const bool in_file = entry.place.line != 0 && given.place.line != 0;
      if (detail::find_setting(detail::canonical(inner)) == nullptr) {
        add_unknown(in_file ? entry.place : Place{}, in_file ? at(entry.place) : given.origin, inner);
        continue;
      }
      const Place place = entry.value.place.line == 0 ? entry.place : entry.value.place;
      given_.insert_or_assign(std::string{detail::canonical(inner)},
                              in_file ? Given{entry.value, at(place), place} : Given{entry.value, given.origin, {}});
    }
  }

  void add(std::string_view key, const Given& given, const Finding& finding) {
    const bool named = given.origin.starts_with("--set ");
    const bool within = !named && finding.place.line != 0;
    problems_.add(within ? finding.place : given.place, within ? at(finding.place) : given.origin,
                  Finding{finding.code, named ? finding.text : text(key, " ", finding.text)});
  }

  void check(const std::string& key, const Given& given, Settings& settings) {
    const SettingKey* setting = detail::find_setting(key);
    const auto finding = setting != nullptr ? detail::check_value(*setting, given.value)
                                            : detail::check_planned(*detail::find_planned(key), given.value);
    if (finding) {
      add(key, given, *finding);
    } else if (setting != nullptr) {
      setting->store(settings, given.value);
    }
  }

  /// Groups take missing keys from the other keys, wherever those are written.
  void settle_groups(Settings& settings) {
    const auto given = given_.find("update.group");
    if (given == given_.end() || !problems_.empty()) return;
    detail::store_groups(settings, given->second.value);
    if (const auto finding = detail::group_contradiction(given->second.value, settings))
      add("update.group", given->second, *finding);
  }

  std::string name_;
  detail::GivenKeys given_;
  Problems problems_;
};

/// Whether only the launcher reads the key: it means nothing once the ranks run.
bool is_for_the_launcher(std::string_view key) {
  return key == "cluster.nodes" || key == "cluster.remote_shell" || key == "cluster.port";
}

std::string configuration_limit() { return text("a configuration has at most ", kMostConfigurationBytes); }

}  // namespace

std::string Configuration::origin_of(std::string_view key) const {
  const auto at =
      std::find_if(values.begin(), values.end(), [&](const EffectiveValue& value) { return value.key == key; });
  TROUPE_CHECK(at != values.end(), Code::invalid, "no setting is called ", key);
  return at->origin;
}

std::uint64_t Configuration::hash() const {
  std::string all;
  for (const EffectiveValue& value : values)
    if (!is_for_the_launcher(value.key)) all += text(value.key, " = ", value.value, "\n");
  return XXH3_64bits(all.data(), all.size());
}

std::vector<std::string> Configuration::lines() const {
  constexpr std::size_t kLongest = 80;
  std::vector<std::string> lines;
  for (const EffectiveValue& value : values) {
    if (is_for_the_launcher(value.key)) continue;
    const bool cut = value.value.size() > kLongest;
    lines.push_back(text(value.key, " = ", value.value.substr(0, kLongest)));
    if (cut)
      lines.back() += text("... (checksum 0x", hexadecimal(XXH3_64bits(value.value.data(), value.value.size())), ")");
  }
  return lines;
}

HostList host_list(const Configuration& configuration) {
  const Settings::Cluster& cluster = configuration.settings.cluster;
  if (cluster.host_file.empty()) return cluster.hosts;
  const std::filesystem::path file{cluster.host_file};
  const bool elsewhere = file.is_relative() && configuration.folder != ".";
  return read_host_file(elsewhere ? std::filesystem::path{configuration.folder} / file : file,
                        text(configuration.origin_of("cluster.nodes"), ": cluster.nodes = ",
                             detail::in_quotes(cluster.host_file), ", from the folder of app.toml: "));
}

Configuration read_configuration(const std::string& file, const std::vector<std::string>& overrides) {
  return parse_configuration(detail::read_text_file(file, file,
                                                    {"the configuration", "give the path of an app.toml",
                                                     kMostConfigurationBytes, configuration_limit()}),
                             file, overrides);
}

Configuration parse_configuration(std::string_view toml, std::string name, const std::vector<std::string>& overrides) {
  TROUPE_CHECK(toml.size() <= kMostConfigurationBytes, Code::invalid, name, ": has ", toml.size(), " bytes; ",
               configuration_limit());
  const TomlValue document = detail::parse_toml(toml, name);
  Reading reading{std::move(name)};
  reading.read_document(document);
  for (const std::string& assignment : overrides) reading.read_override(assignment);
  return reading.finish();
}

}  // namespace troupe
