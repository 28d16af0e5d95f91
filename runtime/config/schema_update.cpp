#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <variant>

#include "runtime/base/words.hpp"
#include "runtime/config/config.hpp"
#include "runtime/config/detail/groups.hpp"
#include "runtime/config/detail/sections.hpp"
#include "runtime/exchange/policies/policy_entry.hpp"

namespace troupe::detail {
namespace {

/// Of the user's text in a message about it.
constexpr std::size_t kShownBytes = 60;

using S = Settings;

/// When a switch takes effect, in the order of PolicySwitch::Trigger.
const std::vector<SettingKey>& trigger_keys() {
  using enum PolicySwitch::Trigger;
  constexpr double kNoLimit = 9.3e18;
  static const std::vector<SettingKey> keys{{name_of(step), {}, integer(1, kNoLimit), {}, "1000"},
                                            {name_of(epoch), {}, integer(2, kNoLimit), {}, "2"},
                                            {name_of(samples), {}, integer(1, kNoLimit), {}, "240000"},
                                            {name_of(straggler), {}, number_above(1, 1000), {}, "2.5"}};
  return keys;
}

std::string_view key_of(const SettingKey& key) noexcept { return key.name.substr(key.name.find('.') + 1); }

/// Why the policy of `settings` does not use this setting of policies; empty: it does, or the key is something else.
std::string meaningless(const SettingKey* key, const Settings& settings) {
  if (key == nullptr || key->means_something(settings)) return {};
  return troupe::text(key_of(*key), " is not used by policy = ", in_quotes(name_of(settings.update.kind)),
                      "; leave it out");
}

/// The key update.policy, or one of a policy's settings, by its name alone; a switch has no synchronous start
/// (distributed_after). Null: there is none.
const SettingKey* policy_key(std::string_view name) {
  const auto& keys = update_keys();
  const auto key = std::ranges::find(keys, name, key_of);
  const bool own =
      key != keys.end() && name != "distributed_after" && (name == "policy" || key->beside.key == "update.policy");
  return own ? &*key : nullptr;
}

/// One entry of update.switch: when it takes effect, and the policy with its own settings.
std::variant<PolicySwitch, Finding> switch_of(const TomlValue& table) {
  const auto wrong = [&](Place place, auto&&... what) {
    return invalid(troupe::text(what...), place.line != 0 ? place : table.place);
  };
  if (table.kind != TomlValue::Kind::table) {
    return wrong(
        table.place, "has ", describe(table),
        ", but takes tables, as in update.switch = [{ at_epoch = 2, policy = \"local_sgd\", every_steps = 8 }]");
  }
  Settings settings;
  PolicySwitch change;
  std::size_t triggers = 0;
  bool has_policy = false;
  for (const TomlValue::Entry& entry : table.entries) {
    const auto trigger = std::ranges::find(trigger_keys(), entry.key, &SettingKey::name);
    const bool is_trigger = trigger != trigger_keys().end();
    const SettingKey* const key = is_trigger ? &*trigger : policy_key(entry.key);
    if (key == nullptr) {
      return wrong(entry.place, "has the unknown key ", in_quotes(entry.key),
                   "; an entry takes at_step, at_epoch, at_samples or at_straggler, policy and the policy's settings");
    }
    if (auto finding = check_value(*key, entry.value)) return wrong(entry.value.place, entry.key, " ", finding->text);
    if (!is_trigger) {
      key->store(settings, entry.value);
      has_policy |= entry.key == "policy";
      continue;
    }
    ++triggers;
    change.trigger = static_cast<PolicySwitch::Trigger>(trigger - trigger_keys().begin());
    if (change.trigger == PolicySwitch::Trigger::straggler) {
      change.ratio = entry.value.number;
    } else {
      change.at = static_cast<std::uint64_t>(entry.value.integer);
    }
  }
  if (triggers != 1 || !has_policy) {
    const std::string_view begin = triggers == 0 ? "no beginning" : triggers > 1 ? "more than one beginning" : "";
    return wrong(table.place, "has an entry with ", begin, !begin.empty() && !has_policy ? " and " : "",
                 has_policy ? "" : "no policy",
                 "; an entry takes one of at_step, at_epoch, at_samples and at_straggler, and a policy");
  }
  change.policy = settings.update;
  for (const TomlValue::Entry& entry : table.entries) {
    const std::string what = meaningless(policy_key(entry.key), settings);
    if (!what.empty()) return wrong(entry.place, what);
  }
  if (const std::string why = contradiction(change.policy); !why.empty())
    return wrong(table.place, "has an entry: ", why);
  return change;
}

/// An entry takes effect only after those before it, so one that begins earlier would be late, and of two that begin
/// at the same step only the second would ever be used. Entries that begin by something else are compared when data and
/// ranks are known (check_order_of_switches).
std::optional<Finding> check_switches(const TomlValue& value) {
  std::map<PolicySwitch::Trigger, std::uint64_t> last;
  for (const TomlValue& item : value.items) {
    auto found = switch_of(item);
    if (auto* finding = std::get_if<Finding>(&found)) return std::move(*finding);
    const auto& change = std::get<PolicySwitch>(found);
    if (change.trigger == PolicySwitch::Trigger::straggler) continue;  // its ratio is no order
    std::uint64_t& before = last[change.trigger];
    if (change.at <= before) {
      const std::string_view name = name_of(change.trigger);
      return invalid(troupe::text("has an entry with ", name, " = ", change.at, " after one with ", name, " = ", before,
                                  "; write them in the order in which they begin, each later than the one before"),
                     item.place);
    }
    before = change.at;
  }
  return std::nullopt;
}

void store_switches(Settings& s, const TomlValue& value) {
  s.switches.clear();
  for (const TomlValue& item : value.items) s.switches.push_back(std::get<PolicySwitch>(switch_of(item)));
}

std::string show_switches(const Settings& s) {
  std::string out;
  for (const PolicySwitch& change : s.switches) {
    out += troupe::text(
        out.empty() ? "" : ", ", "{ ", name_of(change.trigger), " = ",
        change.trigger == PolicySwitch::Trigger::straggler ? number_text(change.ratio) : std::to_string(change.at));
    Settings settings;
    settings.update = change.policy;
    for (const SettingKey& key : update_keys()) {
      if (key.takes.kind == ValueKind::switches) continue;
      if (key.name != "update.policy" && key.is_default(settings)) continue;
      out += troupe::text(", ", key_of(key), " = ", key.show(settings));
    }
    out += " }";
  }
  return "[" + out + "]";
}

/// "sync: gradients, every step. ...", for every policy.
std::string policies_text() {
  std::string all;
  for (const PolicyKind kind : kPolicyKinds)
    all += troupe::text(name_of(kind), ": ", entry_of(kind).sent, ", ", entry_of(kind).when, ". ");
  return all;
}

/// "500", "1 - 1/ranks", "0.9/ranks".
std::string default_text(const PolicyReads& reads) {
  if (reads.by_ranks == 0) return number_text(reads.fixed);
  const std::string part = number_text(std::abs(reads.by_ranks)) + "/ranks";
  if (reads.fixed == 0) return part;
  return troupe::text(number_text(reads.fixed), reads.by_ranks < 0 ? " - " : " + ", part);
}

/// "0: the default, which is 8 for local_sgd and 500 for diloco."; empty if no policy has a default of its own.
std::string defaults_text(const PolicySetting& setting, std::string_view left_open) {
  std::vector<std::pair<std::string, std::vector<std::string_view>>> defaults;
  for (const PolicyKind kind : readers_of(setting)) {
    const PolicyReads& reads = *std::ranges::find(entry_of(kind).reads, setting.member, &PolicyReads::member);
    if (!reads.has_default()) continue;
    const std::string value = default_text(reads);
    auto at = std::ranges::find(defaults, value, &decltype(defaults)::value_type::first);
    if (at == defaults.end()) at = defaults.insert(at, {value, {}});
    at->second.push_back(name_of(kind));
  }
  if (defaults.empty()) return {};
  if (defaults.size() == 1) return troupe::text(" ", left_open, ": the default, ", defaults[0].first, ".");
  std::vector<std::string> parts;
  for (const auto& [value, names] : defaults) parts.push_back(troupe::text(value, " for ", listed(names)));
  return troupe::text(" ", left_open, ": the default, which is ", listed({parts.begin(), parts.end()}, ", and "), ".");
}

SettingKey key_of_policies(const PolicySetting& setting) {
  const auto place = [member = setting.member](Settings& s) {
    return std::visit([&](auto m) { return slot(s.update.*m); }, member);
  };
  const auto takes = [&](auto value) -> Takes {
    if constexpr (std::is_same_v<decltype(value), bool>) return yes_or_no();
    if constexpr (std::is_same_v<decltype(value), BlockRule>) return one_of_first<BlockRule>(2);
    return {std::is_same_v<decltype(value), double> ? ValueKind::number : ValueKind::integer,
            {setting.range[0], setting.range[1]}};
  };
  Beside beside{"update.policy"};
  for (const PolicyKind kind : readers_of(setting)) beside.words.push_back(name_of(kind));
  SettingKey key{
      setting.key,      place,           std::visit([&](auto m) { return takes(PolicySettings{}.*m); }, setting.member),
      setting.help,     setting.example, std::string{setting.more},
      std::move(beside)};
  const std::string defaults = defaults_text(setting, key.show({}));
  key.more += key.more.empty() && !defaults.empty() ? defaults.substr(1) : defaults;
  return key;
}

Keys make_update_keys() {
  Keys keys{{"update.policy", at<&S::update, &PolicySettings::kind>, one_of_first<PolicyKind>(kPolicyKinds.size()),
             "when ranks exchange", "\"sync\"", policies_text() + "docs/policies.md says which to use when."}};
  std::ranges::transform(policy_settings(), std::back_inserter(keys), key_of_policies);
  const Keys rest{
      {"update.compress", at<&S::compression, &CompressionSettings::kind>, one_of_first<Compression>(2),
       "number type to which gradients and deltas are rounded when they are sent between nodes", "\"bf16\"",
       "bf16: half the bytes for gradients. The gradients of each rank are rounded to the nearest; sums and parameters "
       "stay f32. Ranks of one node share memory and send no gradients, so nothing is rounded there."},
      {"update.error_feedback", at<&S::compression, &CompressionSettings::error_feedback>, yes_or_no(),
       "whether the rounding error is added to the next values that the rank sends", "true",
       "Only with update.compress. Uses as much memory on each rank as its gradients, and is saved in checkpoints."},
      {"update.digest_steps", at<&S::digest_steps>, integer(0, 1 << 30),
       "steps from one comparison of all ranks' weights to the next", "1000",
       "Each rank's device computes a checksum (xxh3) of each tensor of its weights, after the step in its stream. The "
       "run ends when one differs from rank 0's, and names the tensor and the rank. The comparison happens after the "
       "next step that leaves all ranks with equal weights: if ranks work locally, the end of a block; under async, "
       "ssp and easgd, a step before an evaluation, a checkpoint or a switch. 0: none."},
      {"update.log", at<&S::update_log>, text_in_quotes(),
       "folder for logs of the contributions that hosted shards apply, relative to the working directory",
       "\"run/updates\"",
       text("Only with policy = ", quoted_list(policies_that(is_hosted)),
            ". Each shard writes 16 bytes for each contribution that it applies. With them update.replay repeats the "
            "run. Every rank writes on its own host; an existing log is not overwritten. \"\": none.")},
      {"update.replay", at<&S::update_replay>, text_in_quotes(),
       "folder of the logs of an earlier run, whose order the shards follow", "\"run/updates\"",
       "With the settings of that run and the same number of ranks, this run ends with the same bits, however ranks "
       "are scheduled. \"\": shards apply contributions in the order in which they arrive."},
      {"update.switch",
       Custom{store_switches, show_switches},
       {.kind = ValueKind::switches, .check = check_switches},
       "other policies later in the run",
       "[{ at_epoch = 2, policy = \"local_sgd\", every_steps = 8 }]",
       "Each entry has a policy, the policy's settings, and one of at_step (number of steps taken before), at_epoch "
       "(counted from 1), at_samples (number of samples that all ranks have taken before) and at_straggler. Entries "
       "are written in the order in which they begin, each at a later step than the one before and after "
       "distributed_after. The last step of a policy completes every exchange, so all ranks "
       "begin the next policy with the same weights. at_straggler = 2.5: the policy begins once, some steps after a "
       "window of steps in which the slowest rank took 2.5 times the median time to load, compute and update; the "
       "entries after it are then ignored."},
      {"update.group",
       Custom{store_groups, show_groups},
       {.kind = ValueKind::switches, .check = check_groups},
       "groups of parameters with a policy or an optimizer of their own, as tables [[update.group]]",
       "[{ name = \"biases\", match = [\"*.bias\"], policy = \"sync\", optimizer = { rate = 0.01 } }]",
       "Each has a name, match (one or several names of parameters, in which `*` stands for any characters), and any "
       "of the keys of [update]. A group that names a policy starts from that policy's defaults, any other group from "
       "[update]. optimizer: its own rule, rate (the base of the schedule; 0: its parameters do not change), momentum, "
       "beta1, beta2, alpha, epsilon, weight_decay. A parameter is in at most one group; parameters that no group "
       "matches follow [update]."},
  };
  keys.insert(keys.end(), rest.begin(), rest.end());
  return keys;
}

}  // namespace

const Keys& update_keys() {
  static const Keys keys = make_update_keys();
  return keys;
}

std::vector<std::string_view> policies_that(bool (*has)(PolicyKind) noexcept) {
  std::vector<std::string_view> words;
  for (const PolicyKind kind : kPolicyKinds)
    if (has(kind)) words.push_back(name_of(kind));
  return words;
}

}  // namespace troupe::detail

namespace troupe {

PolicySettings parse_policy(std::string_view name, std::span<const std::string> settings) {
  Settings all;
  const auto take = [&all](std::string_view key_name, const std::string& written) {
    const detail::SettingKey* const key = detail::policy_key(key_name);
    TROUPE_CHECK(key != nullptr, Code::invalid, detail::in_quotes(key_name.substr(0, detail::kShownBytes)),
                 " is not a setting of a policy; docs/app-toml.md has those of [update]");
    auto value =
        detail::parse_toml_value(key->takes.kind == detail::ValueKind::choice ? detail::in_quotes(written) : written);
    TROUPE_CHECK(value.has_value(), Code::invalid, key_name, ": cannot read ",
                 detail::in_quotes(written.substr(0, detail::kShownBytes)), " as a value");
    const auto finding = detail::check_value(*key, *value);
    TROUPE_CHECK(!finding, Code::invalid, key_name, " ", finding->text);
    key->store(all, *value);
  };
  take("policy", std::string{name});
  std::set<std::string_view> given;
  for (const std::string& setting : settings) {
    const std::string_view key = std::string_view{setting}.substr(0, setting.find('='));
    TROUPE_CHECK(key.size() < setting.size() && key != "policy", Code::invalid,
                 detail::in_quotes(setting.substr(0, detail::kShownBytes)),
                 " is not a setting of a policy; write settings as every_steps=8");
    TROUPE_CHECK(given.insert(key).second, Code::invalid, key, " is given twice");
    take(key, setting.substr(key.size() + 1));
    const std::string wrong = detail::meaningless(detail::policy_key(key), all);
    TROUPE_CHECK(wrong.empty(), Code::invalid, wrong);
  }
  const std::string wrong = contradiction(all.update);
  TROUPE_CHECK(wrong.empty(), Code::invalid, wrong);
  return all.update;
}

}  // namespace troupe
