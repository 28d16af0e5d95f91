#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
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
  layers,
  numbers,
  texts,
  batches,
  count_or_choice
};

/// One word of a choice; `built` is false for a word that is planned, which is refused.
struct Choice {
  std::string_view name;
  bool built = true;
};

struct Range {
  double low = 0;
  double high = 0;
  bool above_low = false;  // low itself is not allowed
  bool contains(double x) const noexcept { return (above_low ? x > low : x >= low) && x <= high; }
};

/// What is wrong with a value, without the key's own position.
struct Finding {
  Code code = Code::invalid;
  std::string text;
  Place place{};  // of the wrong part of the value; line 0: of the value
};
inline Finding invalid(std::string text, Place place = {}) { return {Code::invalid, std::move(text), place}; }

/// The values that a key takes.
struct Takes {
  ValueKind kind = ValueKind::text;
  Range range{};                // of an integer or number, and of each item of an array
  std::size_t least_items = 1;  // of an array
  std::size_t most_items = 0;
  std::vector<Choice> choices{};
  std::string_view today{};  // what to write today instead of a planned word
  /// Checks what kind and range cannot express; null: nothing.
  std::optional<Finding> (*check)(const TomlValue&) = nullptr;
};
inline Takes text_in_quotes(std::optional<Finding> (*check)(const TomlValue&) = nullptr) { return {.check = check}; }
inline Takes yes_or_no() { return {.kind = ValueKind::boolean}; }
inline Takes integer(double low, double high) { return {.kind = ValueKind::integer, .range = {low, high}}; }
inline Takes number(double low, double high) { return {.kind = ValueKind::number, .range = {low, high}}; }
inline Takes number_above(double low, double high) { return {.kind = ValueKind::number, .range = {low, high, true}}; }
inline Takes array_of(ValueKind kind, std::size_t least, std::size_t most, Range each = {}) {
  return {.kind = kind, .range = each, .least_items = least, .most_items = most};
}
Takes one_of(std::initializer_list<std::string_view> built, std::initializer_list<std::string_view> planned = {},
             std::string_view today = {});
/// An integer, or one of some words.
inline Takes integer_or(std::initializer_list<std::string_view> words, double low, double high) {
  Takes takes = one_of(words);
  takes.kind = ValueKind::count_or_choice;
  takes.range = {low, high};
  return takes;
}
/// The names of the first `count` enumerators.
template <class Enum>
Takes one_of_first(std::size_t count) {
  Takes takes{.kind = ValueKind::choice};
  for (std::size_t i = 0; i < count; ++i) takes.choices.push_back({name_of(static_cast<Enum>(i))});
  return takes;
}

/// The place of a value in the settings. A choice is stored as its word, or as the word's index in a bool or in the
/// byte of an enumerator. Milliseconds are written in seconds if the key takes a number.
using Slot = std::variant<bool*, std::uint8_t*, std::uint16_t*, std::uint32_t*, std::uint64_t*, double*, std::string*,
                          std::chrono::milliseconds*, std::vector<std::uint32_t>*, std::vector<double>*,
                          std::vector<std::string>*>;
template <class T>
Slot slot(T& value) {
  if constexpr (std::is_enum_v<T>) {
    static_assert(sizeof(T) == 1);
    return reinterpret_cast<std::uint8_t*>(&value);
  } else {
    return &value;
  }
}
/// The member at the end of a path: at<&Settings::data, &Settings::Data::prefetch>.
template <auto... kPath>
inline constexpr auto at = [](Settings& settings) { return slot((settings.*....*kPath)); };
/// A value that no slot can store.
struct Custom {
  void (*store)(Settings&, const TomlValue&);
  std::string (*show)(const Settings&);  // as TOML that reads back as the same value
};

/// The words of another key with which this key has an effect.
struct Beside {
  std::string_view key;  // such as update.policy; empty: the key always has an effect
  std::vector<std::string_view> words{};
  bool says_something_as_default = false;  // with another word the key is an error even if it is given its default
};

/// One key of app.toml: what it takes, where it is stored, and its description. Settings, `rtrun check`, the reference,
/// completion and every message are made from these entries. docs/extending.md lists all that a new key needs.
struct SettingKey {
  std::string_view name;  // data.batch
  std::variant<std::function<Slot(Settings&)>, Custom> place;
  Takes takes;
  std::string_view help;     // a phrase
  std::string_view example;  // as TOML
  std::string more{};        // sentences for the reference; may be empty
  Beside beside{};

  /// Stores a checked value in the settings.
  void store(Settings& settings, const TomlValue& value) const;
  /// The settings' value as TOML that reads back as the same value.
  std::string show(const Settings& settings) const;
  bool is_default(const Settings& settings) const { return show(settings) == show({}); }
  /// Whether the key has an effect with the other settings.
  bool means_something(const Settings& settings) const;
};
using Keys = std::vector<SettingKey>;

/// A key that is planned and not in this build.
struct PlannedKey {
  std::string_view name;     // checkpoint.dir
  std::string_view neutral;  // the only value that is accepted, as TOML; empty: none
  std::string_view today;    // what to use today instead
};

/// In the order in which they are shown, section by section.
std::span<const SettingKey> setting_keys();
std::span<const PlannedKey> planned_keys();
const SettingKey* find_setting(std::string_view name);
/// The key to which the text written as `name` belongs: of `optimizer.rate.base`, optimizer.rate.
std::string_view canonical(std::string_view name);
/// Whether `name` may be written as a table with keys of its own (optimizer.rate).
bool takes_table(std::string_view name);
const PlannedKey* find_planned(std::string_view name);
inline std::string_view section_of(std::string_view name) { return name.substr(0, name.find('.')); }
/// Sections in the order of the schema.
const std::vector<std::string_view>& sections();

/// The names of the policies for which `has` is true, e.g. is_hosted.
std::vector<std::string_view> policies_that(bool (*has)(PolicyKind) noexcept);

/// What is wrong with `value` for `key`, or nothing.
std::optional<Finding> check_value(const SettingKey& key, const TomlValue& value);
/// The same for a planned key.
std::optional<Finding> check_planned(const PlannedKey& key, const TomlValue& value);
/// What `key` takes, for messages: "an integer from 1 to 8".
std::string expected(const SettingKey& key);
/// A description of `key` in sentences, as Markdown, for the reference.
std::string meaning(const SettingKey& key);
/// `words` separated by commas, with `last` before the last one. quoted_list: each in quotes, like TOML text.
std::string listed(const std::vector<std::string_view>& words, std::string_view last = " and ");
std::string quoted_list(const std::vector<std::string_view>& words, std::string_view last = " or ");
/// The advice for a key that does not exist: a sentence that names the nearest valid key or section.
std::string advise(std::string_view unknown_key);
/// The key that a word without a section probably means, such as epochs, lr or batch_size; empty: none is near.
std::string_view meant_key(std::string_view word);
/// The nearest of `words`, or empty. Near: a third of the letters differ, or one word contains the other (batch_size).
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& words);

}  // namespace troupe::detail
