#include <algorithm>
#include <array>

#include "runtime/config/detail/groups.hpp"
#include "runtime/config/detail/sections.hpp"

namespace troupe::detail {
namespace {

using Group = Settings::Group;
using Kind = TomlValue::Kind;

/// The keys of [optimizer] that a group may have of its own.
constexpr std::array<std::string_view, 9> kOfOptimizer{
    "optimizer.rule",  "optimizer.rate",    "optimizer.momentum", "optimizer.beta1",       "optimizer.beta2",
    "optimizer.alpha", "optimizer.epsilon", "optimizer.trust",    "optimizer.weight_decay"};
constexpr std::string_view kOptimizer = "optimizer.";
constexpr std::string_view kUpdate = "update.";
constexpr std::string_view kAsIn = ", as in [[update.group]] name = \"biases\", match = \"*.bias\", policy = \"sync\"";

Finding wrong(Place place, std::string what) { return invalid(std::move(what), place); }

const TomlValue* find(const TomlValue& table, std::string_view key) {
  for (const TomlValue::Entry& entry : table.entries)
    if (entry.key == key) return &entry.value;
  return nullptr;
}

/// The texts of `match`; empty if it is not text or a list of texts.
std::vector<std::string> patterns_of(const TomlValue* match) {
  std::vector<std::string> patterns;
  if (match == nullptr) return patterns;
  if (match->kind == Kind::text && !match->text.empty()) patterns.push_back(match->text);
  for (const TomlValue& item : match->items) {
    if (item.kind != Kind::text || item.text.empty()) return {};
    patterns.push_back(item.text);
  }
  return patterns;
}

/// Stores one of the group's keys. `full`: the key's name outside a group.
std::optional<Finding> take(Settings& own, const std::string& full, const TomlValue::Entry& entry) {
  const SettingKey* key = find_setting(full);
  // With a rate of 0 the group's parameters do not change; outside a group that would be a mistake.
  if (full == "optimizer.rate" && entry.value.kind != Kind::text && entry.value.number == 0 &&
      (entry.value.kind == Kind::integer || entry.value.kind == Kind::number)) {
    own.rule.rate = 0;
    return std::nullopt;
  }
  if (auto finding = check_value(*key, entry.value))
    return Finding{finding->code, troupe::text(entry.key, " ", finding->text), entry.value.place};
  key->store(own, entry.value);
  return std::nullopt;
}

std::optional<Finding> take_optimizer(Settings& own, const TomlValue& table) {
  for (const TomlValue::Entry& entry : table.entries) {
    const std::string full = troupe::text(kOptimizer, entry.key);
    if (std::find(kOfOptimizer.begin(), kOfOptimizer.end(), full) == kOfOptimizer.end()) {
      std::string known;
      for (const std::string_view name : kOfOptimizer)
        known += troupe::text(known.empty() ? "" : ", ", name.substr(kOptimizer.size()));
      return wrong(entry.place, troupe::text("has the unknown key optimizer.", entry.key,
                                             "; a group's own optimizer takes ", known));
    }
    if (auto finding = take(own, full, entry)) return finding;
  }
  own.rule = with_momentum(own.rule, find(table, "rule") == nullptr || find(table, "momentum") != nullptr);
  return std::nullopt;
}

/// Reads one table; missing keys are taken from `base`.
std::variant<Group, Finding> group_of(const TomlValue& table, const Settings& base) {
  if (table.kind != Kind::table)
    return wrong(table.place, troupe::text("has ", describe(table), ", but takes tables", kAsIn));
  Settings own = base;
  if (find(table, "policy") != nullptr) {
    own.update = {};
    own.switches.clear();
  }
  Group group;
  const TomlValue* name = find(table, "name");
  if (name == nullptr || name->kind != Kind::text || name->text.empty() || name->text == group.name)
    return wrong(name == nullptr ? table.place : name->place,
                 troupe::text("has a group without a name of its own", kAsIn));
  group.name = name->text;
  const TomlValue* match = find(table, "match");
  group.match = patterns_of(match);
  if (group.match.empty())
    return wrong(match == nullptr ? table.place : match->place,
                 troupe::text("has the group ", in_quotes(group.name),
                              " without names or patterns of parameters to match", kAsIn));
  for (const TomlValue::Entry& entry : table.entries) {
    if (entry.key == "name" || entry.key == "match") continue;
    const std::string full = troupe::text(kUpdate, entry.key);
    const SettingKey* key = find_setting(full);
    std::optional<Finding> finding;
    if (entry.key == "optimizer" && entry.value.kind == Kind::table) {
      finding = take_optimizer(own, entry.value);
    } else if (key == nullptr || entry.key == "group" || entry.key == "digest_steps" || entry.key == "log" ||
               entry.key == "replay") {
      finding = wrong(entry.place, troupe::text("has the unknown key ", in_quotes(entry.key),
                                                "; a group takes name, match, the keys of [update], and optimizer = "
                                                "{ rate = 0.01 }"));
    } else {
      finding = take(own, full, entry);
    }
    if (finding) return *std::move(finding);
  }
  const auto waits = [](const PolicySwitch& change) { return change.trigger == PolicySwitch::Trigger::straggler; };
  if (const TomlValue* own_switch = find(table, "switch");
      own_switch != nullptr && std::any_of(own.switches.begin(), own.switches.end(), waits))
    return wrong(own_switch->place, troupe::text("has the group ", in_quotes(group.name),
                                                 " with at_straggler, which is of all groups: write it in [update]"));
  group.update = own.update;
  group.compression = own.compression;
  group.switches = own.switches;
  group.rule = own.rule;
  return group;
}

/// The settings as they apply to the group's parameters.
Settings settings_of(const Group& group, Settings settings = {}) {
  settings.update = group.update;
  settings.compression = group.compression;
  settings.switches = group.switches;
  settings.rule = group.rule;
  return settings;
}

/// A key that has no effect with the policy or the rule of the complete group.
std::optional<Finding> meaningless(const TomlValue& table, const Group& group) {
  const Settings own = settings_of(group);
  const auto check = [&](std::string_view section, const TomlValue::Entry& entry,
                         std::string_view chooser) -> std::optional<Finding> {
    const SettingKey* key = find_setting(troupe::text(section, entry.key));
    if (key == nullptr || key->means_something(own)) return std::nullopt;
    return wrong(entry.place,
                 troupe::text("has the group ", in_quotes(group.name), ", where ", entry.key, " is not used by ",
                              chooser, " = ", find_setting(key->beside.key)->show(own), "; leave it out"));
  };
  for (const TomlValue::Entry& entry : table.entries) {
    if (auto finding = check(kUpdate, entry, "policy")) return finding;
    if (entry.key != "optimizer") continue;
    for (const TomlValue::Entry& constant : entry.value.entries)
      if (auto finding = check(kOptimizer, constant, "optimizer.rule")) return finding;
  }
  if (const std::string why = contradiction(group.update); !why.empty())
    return wrong(table.place, "has a group: " + why);
  return std::nullopt;
}

/// The keys that differ from `base`, as TOML.
std::string show_optimizer(const Group& group, const Settings& base) {
  const Settings own = settings_of(group, base);
  std::string out;
  for (const std::string_view name : kOfOptimizer) {
    const SettingKey* key = find_setting(name);
    const bool own_momentum = name == "optimizer.momentum" && group.rule.kind == RuleKind::rmsprop_momentum;
    if ((!own_momentum && key->show(own) == key->show(base)) || !key->means_something(own)) continue;
    out += troupe::text(out.empty() ? "" : ", ", name.substr(kOptimizer.size()), " = ", key->show(own));
  }
  return out;
}

}  // namespace

std::optional<Finding> check_groups(const TomlValue& value) {
  if (value.items.size() > kMostGroups)
    return wrong(value.place, troupe::text("has ", value.items.size(), " groups, but takes at most ", kMostGroups));
  std::vector<std::string> names;
  for (const TomlValue& item : value.items) {
    auto group = group_of(item, {});
    if (auto* finding = std::get_if<Finding>(&group)) return std::move(*finding);
    const std::string& name = std::get<Group>(group).name;
    if (std::find(names.begin(), names.end(), name) != names.end())
      return wrong(item.place, troupe::text("has two groups named ", in_quotes(name), "; give each a name of its own"));
    names.push_back(name);
  }
  return std::nullopt;
}

void store_groups(Settings& settings, const TomlValue& value) {
  settings.groups.clear();
  for (const TomlValue& item : value.items) settings.groups.push_back(std::get<Group>(group_of(item, settings)));
}

std::string show_groups(const Settings& settings) {
  std::string out;
  for (const Group& group : settings.groups) {
    out += troupe::text(out.empty() ? "" : ", ", "{ name = ", in_quotes(group.name), ", match = [");
    for (const std::string& pattern : group.match)
      out += troupe::text(&pattern == &group.match.front() ? "" : ", ", in_quotes(pattern));
    out += "]";
    const Settings own = settings_of(group);
    for (const SettingKey& key : update_keys()) {
      const bool always = key.name == "update.policy" || key.name == "update.compress" ||
                          (key.name == "update.error_feedback" && key.show(own) != key.show(settings));
      if (key.name == "update.group" || (!always && key.is_default(own))) continue;
      out += troupe::text(", ", key.name.substr(kUpdate.size()), " = ", key.show(own));
    }
    const std::string optimizer = show_optimizer(group, settings);
    out += optimizer.empty() ? " }" : troupe::text(", optimizer = { ", optimizer, " } }");
  }
  return "[" + out + "]";
}

std::optional<Finding> group_contradiction(const TomlValue& value, const Settings& settings) {
  for (std::size_t i = 0; i < settings.groups.size(); ++i)
    if (auto finding = meaningless(value.items[i], settings.groups[i])) return finding;
  for (const Group& group : settings.groups) {
    const auto hosts = [](const PolicySwitch& change) { return is_hosted(change.policy.kind); };
    if (settings.placement.split != "measured" ||
        (!is_hosted(group.update.kind) && std::ranges::none_of(group.switches, hosts)))
      continue;
    return wrong(value.place, troupe::text("has the group ", in_quotes(group.name),
                                           ", whose ranks do not take their steps together, so placement.split = "
                                           "\"measured\" cannot be used; write \"equal\""));
  }
  if (settings.groups.empty() || !needs_verdict(settings.rule)) return std::nullopt;
  return wrong(value.place,
               troupe::text("has groups together with ",
                            settings.rule.clip_norm > 0 ? "optimizer.clip_norm"
                            : settings.rule.scales_loss ? "model.dtype = \"f16\""
                                                        : "train.non_finite = \"skip\"",
                            ", which looks at the gradient of all parameters together; leave one of the two out"));
}

}  // namespace troupe::detail
