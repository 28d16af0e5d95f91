#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/config/detail/toml.hpp"
#include "runtime/config/settings.hpp"

namespace troupe::detail {

enum class ValueKind : std::uint8_t {
  text,
  choice,
  integer,
  number,
  boolean,
  integers,
  hosts,
  switches,
  numbers,
  texts,
  batches
};

/// One of the words a choice knows; `built` is false for those that are designed and refused.
struct Choice {
  std::string_view name;
  bool built = true;
};

struct Range {
  double low = 0;
  double high = 0;
  bool above_low = false;  // low itself is outside
  bool contains(double x) const noexcept { return (above_low ? x > low : x >= low) && x <= high; }
};

/// What is wrong with a value, without its place.
struct Finding {
  Code code = Code::invalid;
  std::string text;
  Place place{};  // of a part of the value that is to blame; line 0: of the value
};

/// One key of app.toml: what it takes, where it goes, and what people are told about it. Settings, `rtrun check` and
/// every message come from these entries.
struct SettingKey {
  std::string_view name;  // data.batch
  ValueKind kind = ValueKind::text;
  std::string_view help;        // half a sentence
  std::string_view example;     // as TOML
  std::string_view more{};      // whole sentences for the reference; may be empty
  Range range{};                // of an integer or number, and of each of the integers
  std::size_t least_items = 1;  // of an array
  std::size_t most_items = 0;
  std::span<const Choice> choices{};
  std::string_view planned_shape{};  // what a table or array stands for by design; empty: it is a wrong type
  std::string_view today{};          // what to write instead of what is planned
  /// More than kind and range can say; null: nothing.
  std::optional<Finding> (*check)(const TomlValue&) = nullptr;
  /// Puts a checked value into the settings.
  void (*store)(Settings&, const TomlValue&) = nullptr;
  /// The settings' value as TOML, which reads back as the same.
  std::string (*show)(const Settings&) = nullptr;
};

/// A key that is designed and not built.
struct PlannedKey {
  std::string_view name;     // checkpoint.dir
  std::string_view neutral;  // the one value that is taken, as TOML; empty: none
  std::string_view today;    // what works instead
};

/// The keys of [cluster].
std::span<const SettingKey> cluster_keys();
/// The keys of [placement].
std::span<const SettingKey> placement_keys();
/// The keys of [update], and which of the policies `key` means something to, as TOML texts.
std::span<const SettingKey> update_keys();
std::vector<std::string_view> policies_of(std::string_view key);

/// In the order in which they are shown; the keys of a section stand together.
std::span<const SettingKey> setting_keys();
std::span<const PlannedKey> planned_keys();
const SettingKey* find_setting(std::string_view name);
/// The key that takes what is written under `name`: of `optimizer.rate.base`, optimizer.rate.
std::string_view canonical(std::string_view name);
/// Whether a table may stand for `name`, with keys of its own (optimizer.rate).
bool takes_table(std::string_view name);
const PlannedKey* find_planned(std::string_view name);
/// Sections in the order of the schema.
const std::vector<std::string_view>& sections();

/// What is wrong with `value` for `key`, or nothing.
std::optional<Finding> check_value(const SettingKey& key, const TomlValue& value);
/// The same for a key that is not built.
std::optional<Finding> check_planned(const PlannedKey& key, const TomlValue& value);
/// What `key` takes, as in messages: "an integer from 1 to 8".
std::string takes(const SettingKey& key);
/// What to write instead of a key that does not exist: a sentence that names the nearest valid key or section.
std::string advise(std::string_view unknown_key);
/// The key that somebody means by a word without a section, such as epochs, lr or batch_size; empty: none is near.
std::string_view meant_key(std::string_view word);
/// The nearest of `words`, or empty: near is a third of the letters wrong, or one word inside the other (batch_size).
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& words);

}  // namespace troupe::detail
