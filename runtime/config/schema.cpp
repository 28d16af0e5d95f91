#include "runtime/config/detail/schema.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/base/words.hpp"
#include "runtime/config/detail/sections.hpp"

namespace troupe::detail {
namespace {

constexpr std::array kPlannedKeys{
    PlannedKey{"report.metrics_port", "0", ""},
};

std::size_t index_of(const Takes& takes, std::string_view word) {
  return static_cast<std::size_t>(std::ranges::find(takes.choices, word, &Choice::name) - takes.choices.begin());
}

// Stores a checked value in its slot.
void put(bool& to, const Takes& takes, const TomlValue& v) {
  to = takes.choices.empty() ? v.boolean : index_of(takes, v.text) != 0;
}
void put(std::uint8_t& to, const Takes& takes, const TomlValue& v) {
  to = static_cast<std::uint8_t>(index_of(takes, v.text));
}
template <class Number>
requires std::is_arithmetic_v<Number>
void put(Number& to, const Takes&, const TomlValue& v) {
  if constexpr (std::is_floating_point_v<Number>) {
    to = v.number;
  } else {
    to = static_cast<Number>(v.integer);
  }
}
void put(std::string& to, const Takes&, const TomlValue& v) { to = v.text; }
void put(std::chrono::milliseconds& to, const Takes& takes, const TomlValue& v) {
  to = std::chrono::milliseconds{takes.kind == ValueKind::number ? std::llround(v.number * 1000) : v.integer};
}
template <class Item>
void put(std::vector<Item>& to, const Takes& takes, const TomlValue& v) {
  to.resize(v.items.size());
  for (std::size_t i = 0; i < to.size(); ++i) put(to[i], takes, v.items[i]);
}

// The value of a slot, as TOML.
std::string shown(bool value, const Takes& takes) {
  return takes.choices.empty() ? bool_text(value) : in_quotes(takes.choices[value ? 1 : 0].name);
}
std::string shown(std::uint8_t value, const Takes& takes) { return in_quotes(takes.choices.at(value).name); }
template <class Number>
requires std::is_arithmetic_v<Number> std::string shown(Number value, const Takes&) {
  if constexpr (std::is_floating_point_v<Number>) {
    return number_text(value);
  } else {
    return std::to_string(value);
  }
}
std::string shown(const std::string& value, const Takes&) { return in_quotes(value); }
std::string shown(std::chrono::milliseconds value, const Takes& takes) {
  return takes.kind == ValueKind::number ? number_text(static_cast<double>(value.count()) / 1000)
                                         : std::to_string(value.count());
}
template <class Item>
std::string shown(const std::vector<Item>& values, const Takes& takes) {
  std::vector<std::string> items;
  for (const Item& item : values) items.push_back(shown(item, takes));
  return "[" + joined(items) + "]";
}

/// "Only with policy = "ssp"."; empty for a key that always means something.
std::string only_for(const SettingKey& key) {
  if (key.beside.key.empty()) return {};
  std::vector<std::string_view> others;
  for (const Choice& choice : find_setting(key.beside.key)->takes.choices)
    if (std::ranges::find(key.beside.words, choice.name) == key.beside.words.end()) others.push_back(choice.name);
  const std::string_view chooser = key.beside.key.substr(key.beside.key.rfind('.') + 1);
  return others.size() < key.beside.words.size()
             ? text("Not with ", chooser, " = ", quoted_list(others), ".")
             : text("Only with ", chooser, " = ", quoted_list(key.beside.words), ".");
}

}  // namespace

Takes one_of(std::initializer_list<std::string_view> built, std::initializer_list<std::string_view> planned,
             std::string_view today) {
  Takes takes{.kind = ValueKind::choice, .today = today};
  for (const std::string_view word : built) takes.choices.push_back({word});
  for (const std::string_view word : planned) takes.choices.push_back({word, false});
  return takes;
}

void SettingKey::store(Settings& settings, const TomlValue& value) const {
  if (const auto* custom = std::get_if<Custom>(&place)) return custom->store(settings, value);
  std::visit([&](auto* to) { put(*to, takes, value); }, std::get<0>(place)(settings));
}

std::string SettingKey::show(const Settings& settings) const {
  if (const auto* custom = std::get_if<Custom>(&place)) return custom->show(settings);
  const Slot slot = std::get<0>(place)(const_cast<Settings&>(settings));  // it is only read here
  return std::visit([&](const auto* value) { return shown(*value, takes); }, slot);
}

bool SettingKey::means_something(const Settings& settings) const {
  if (beside.key.empty()) return true;
  const std::string chosen = find_setting(beside.key)->show(settings);
  return std::ranges::any_of(beside.words, [&](std::string_view word) { return in_quotes(word) == chosen; });
}

std::span<const SettingKey> setting_keys() {
  static const Keys keys = [] {
    Keys all;
    for (const Keys& section :
         {cluster_keys(), data_keys(), model_keys(), optimizer_keys(), rate_keys(), train_keys(), update_keys(),
          placement_keys(), evaluate_keys(), checkpoint_keys(), report_keys(), faults_keys()})
      all.insert(all.end(), section.begin(), section.end());
    return all;
  }();
  return keys;
}
std::span<const PlannedKey> planned_keys() { return kPlannedKeys; }

const SettingKey* find_setting(std::string_view name) {
  const auto keys = setting_keys();
  const auto at = std::ranges::find(keys, name, &SettingKey::name);
  return at == keys.end() ? nullptr : &*at;
}

std::string_view canonical(std::string_view name) { return name == "optimizer.rate.base" ? "optimizer.rate" : name; }

bool takes_table(std::string_view name) { return name == "optimizer.rate"; }

const PlannedKey* find_planned(std::string_view name) {
  const auto* const at = std::ranges::find(kPlannedKeys, name, &PlannedKey::name);
  return at == kPlannedKeys.end() ? nullptr : at;
}

std::string listed(const std::vector<std::string_view>& words, std::string_view last) {
  std::string all;
  for (std::size_t i = 0; i < words.size(); ++i)
    all += text(i == 0 ? "" : i + 1 == words.size() ? last : ", ", words[i]);
  return all;
}

std::string quoted_list(const std::vector<std::string_view>& words, std::string_view last) {
  std::vector<std::string> texts;
  for (const std::string_view word : words) texts.push_back(in_quotes(word));
  return listed({texts.begin(), texts.end()}, last);
}

std::string meaning(const SettingKey& key) {
  std::string all{key.help};
  if (all[0] >= 'a' && all[0] <= 'z') all[0] = static_cast<char>(all[0] - 'a' + 'A');
  if (all.back() != '.') all += '.';
  for (const std::string& more : {only_for(key), key.more})
    if (!more.empty()) all += ' ' + more;
  return all;
}

}  // namespace troupe::detail
