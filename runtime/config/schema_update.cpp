#include <algorithm>
#include <array>
#include <set>
#include <variant>

#include "runtime/config/config.hpp"
#include "runtime/config/detail/groups.hpp"
#include "runtime/config/detail/schema.hpp"

namespace troupe::detail {
namespace {

/// Of what somebody wrote, in a message about it.
constexpr std::size_t kShownBytes = 60;

// In the order of PolicyKind.
constexpr std::array kPolicies{Choice{"sync"},
                               Choice{"double_buffered"},
                               Choice{"local_sgd"},
                               Choice{"post_local_sgd"},
                               Choice{"model_averaging"},
                               Choice{"block_momentum"},
                               Choice{"diloco"},
                               Choice{"easgd"},
                               Choice{"async"},
                               Choice{"ssp"}};
constexpr std::array kFilters{Choice{"none"}, Choice{"bf16"}};
constexpr std::array kBlockRules{Choice{"paper"}, Choice{"cntk"}};
constexpr std::uint64_t kMostSamples = 9'000'000'000'000'000'000;

/// What an optional number shows when it is left to the policy.
std::string show(const std::optional<double>& value, double absent) { return number_text(value.value_or(absent)); }
template <std::optional<double> PolicySettings::*kMember>
void store_unless(PolicySettings& to, double value, double absent) {
  to.*kMember = value == absent ? std::nullopt : std::optional{value};
}

using S = Settings;
using V = TomlValue;
using K = ValueKind;

constexpr std::array kTriggers{PolicySwitch::Trigger::step, PolicySwitch::Trigger::epoch,
                               PolicySwitch::Trigger::samples, PolicySwitch::Trigger::straggler};
constexpr Range kStragglerRatio{1, 1000, /*above_low=*/true};

std::string_view key_of(const SettingKey& key) noexcept { return key.name.substr(key.name.find('.') + 1); }

/// Why a policy's own setting does not belong to `policy`; empty: it does, or it is something else.
std::string meaningless(std::string_view key, const PolicySettings& policy) {
  const auto meant = policies_of(troupe::text("update.", key));
  const std::string_view name = name_of(policy.kind);
  if (meant.empty() || std::find(meant.begin(), meant.end(), name) != meant.end()) return {};
  return troupe::text(key, " means nothing to policy = ", quoted(name), "; leave it out");
}

/// Takes one setting of a policy, or its name. Nothing: `name` is no such key.
const SettingKey* policy_key(std::string_view name) {
  const auto keys = update_keys();
  const auto key = std::find_if(keys.begin(), keys.end(), [&](const SettingKey& k) { return key_of(k) == name; });
  const bool own = key != keys.end() && key->kind != ValueKind::switches && name != "distributed_after" &&
                   name != "compress" && name != "error_feedback" && name != "digest_steps" && name != "log" &&
                   name != "replay";
  return own ? &*key : nullptr;
}

/// One entry of update.switch: when, and the policy with its own settings.
std::variant<PolicySwitch, Finding> switch_of(const TomlValue& table) {
  const auto wrong = [&](Place place, auto&&... what) {
    return Finding{Code::invalid, troupe::text(what...), place.line != 0 ? place : table.place};
  };
  if (table.kind != TomlValue::Kind::table) {
    return wrong(table.place, "has ", describe(table),
                 ", but takes tables, as in update.switch = "
                 "[{ at_epoch = 2, policy = \"local_sgd\", every_steps = 8 }]");
  }
  Settings settings;
  PolicySwitch change;
  std::size_t triggers = 0;
  bool has_policy = false;
  for (const TomlValue::Entry& entry : table.entries) {
    const auto trigger =
        std::find_if(kTriggers.begin(), kTriggers.end(), [&](auto t) { return name_of(t) == entry.key; });
    if (trigger != kTriggers.end()) {
      change.trigger = *trigger;
      ++triggers;
      if (*trigger == PolicySwitch::Trigger::straggler) {
        const bool number = entry.value.kind == TomlValue::Kind::integer || entry.value.kind == TomlValue::Kind::number;
        if (!number || !kStragglerRatio.contains(entry.value.number)) {
          return wrong(entry.value.place, entry.key, " is ", describe(entry.value), ", but takes a number above ",
                       kStragglerRatio.low, " and up to ", kStragglerRatio.high);
        }
        change.ratio = entry.value.number;
        continue;
      }
      const std::int64_t least = *trigger == PolicySwitch::Trigger::epoch ? 2 : 1;
      if (entry.value.kind != TomlValue::Kind::integer || entry.value.integer < least) {
        return wrong(entry.value.place, entry.key, " is ", describe(entry.value), ", but takes an integer from ",
                     least);
      }
      change.at = static_cast<std::uint64_t>(entry.value.integer);
      continue;
    }
    const SettingKey* const key = policy_key(entry.key);
    if (key == nullptr) {
      return wrong(entry.place, "has the unknown key ", quoted(entry.key),
                   "; an entry takes at_step, at_epoch, "
                   "at_samples or at_straggler, policy and the policy's settings");
    }
    if (auto finding = check_value(*key, entry.value)) {
      return wrong(entry.value.place, entry.key, " ", finding->text);
    }
    key->store(settings, entry.value);
    has_policy |= entry.key == "policy";
  }
  if (triggers != 1 || !has_policy) {
    return wrong(table.place, "has an entry with ", triggers == 0 ? "no" : "more than one", " beginning",
                 has_policy ? "" : " and no policy",
                 "; an entry takes one of at_step, at_epoch, at_samples and at_straggler, and a policy");
  }
  change.policy = settings.update;
  for (const TomlValue::Entry& entry : table.entries) {
    if (const std::string what = meaningless(entry.key, change.policy); !what.empty()) return wrong(entry.place, what);
  }
  if (const std::string why = contradiction(change.policy); !why.empty())
    return wrong(table.place, "has an entry: ", why);
  return change;
}

std::optional<Finding> check_switches(const TomlValue& value) {
  for (const TomlValue& item : value.items) {
    auto change = switch_of(item);
    if (auto* finding = std::get_if<Finding>(&change)) return std::move(*finding);
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
      if (key.kind == ValueKind::switches) continue;
      if (key.name != "update.policy" && key.show(settings) == key.show({})) continue;
      out += troupe::text(", ", key_of(key), " = ", key.show(settings));
    }
    out += " }";
  }
  return "[" + out + "]";
}

constexpr std::array kUpdate{
    SettingKey{
        .name = "update.policy",
        .kind = K::choice,
        .help = "when ranks exchange",
        .example = "\"sync\"",
        .more = "sync: after every step all ranks have the parameters that one rank with all their samples would have, "
                "except for rounding, since sums are added in another order. double_buffered: the same one step later, "
                "while the next step is computed. local_sgd, post_local_sgd, model_averaging, block_momentum, diloco: "
                "ranks take several "
                "steps by themselves between rounds. async, ssp: ranks push gradients to parameter shards and do not "
                "wait for each other, or for at most so many steps. easgd: ranks train by themselves, and are pulled "
                "toward an average. docs/policies.md says which to use when.",
        .choices = kPolicies,
        .store =
            [](S& s, const V& v) {
              const auto at =
                  std::find_if(kPolicies.begin(), kPolicies.end(), [&](const Choice& c) { return c.name == v.text; });
              s.update.kind = static_cast<PolicyKind>(at - kPolicies.begin());
            },
        .show = [](const S& s) { return quoted(name_of(s.update.kind)); }},
    SettingKey{
        .name = "update.distributed_after",
        .kind = K::integer,
        .help = "number of samples, over all ranks, after which the policy begins; until then the group is synchronous",
        .example = "24000",
        .more = "A warm start: the policy then begins with weights that have been trained a little. 0: the policy "
                "begins at once.",
        .range = {0, static_cast<double>(kMostSamples)},
        .store = [](S& s, const V& v) { s.update.distributed_after = static_cast<std::uint64_t>(v.integer); },
        .show = [](const S& s) { return std::to_string(s.update.distributed_after); }},
    SettingKey{.name = "update.accumulate",
               .kind = K::integer,
               .help = "for sync: number of steps whose gradients are added up to one update",
               .example = "4",
               .more = "As if the batch were that many times larger, without the memory that it would take.",
               .range = {1, 1 << 20},
               .store = [](S& s, const V& v) { s.update.accumulate = static_cast<std::uint32_t>(v.integer); },
               .show = [](const S& s) { return std::to_string(s.update.accumulate); }},
    SettingKey{.name = "update.every_steps",
               .kind = K::integer,
               .help = "number of steps of each rank from one round to the next",
               .example = "8",
               .more = "Only for local_sgd, post_local_sgd, diloco and easgd. 0: the default, which is 500 for diloco "
                       "and 8 for the others.",
               .range = {0, 1 << 30},
               .store = [](S& s, const V& v) { s.update.every_steps = static_cast<std::uint32_t>(v.integer); },
               .show = [](const S& s) { return std::to_string(s.update.every_steps); }},
    SettingKey{.name = "update.block_samples",
               .kind = K::integer,
               .help = "number of samples, over all ranks, from one round to the next",
               .example = "2400",
               .more = "Only for model_averaging and block_momentum. A block ends with the first step that fills it. "
                       "0: the default, which is 40000 for model_averaging and 120000 for block_momentum.",
               .range = {0, static_cast<double>(kMostSamples)},
               .store = [](S& s, const V& v) { s.update.block_samples = static_cast<std::uint64_t>(v.integer); },
               .show = [](const S& s) { return std::to_string(s.update.block_samples); }},
    SettingKey{
        .name = "update.rule",
        .kind = K::choice,
        .help = "which formula block_momentum follows",
        .example = "\"paper\"",
        .more = "paper: Chen and Huo 2016. cntk: CNTK's learner, whose rate and momentum follow the block's size.",
        .choices = kBlockRules,
        .store = [](S& s, const V& v) { s.update.block_rule = v.text == "cntk" ? BlockRule::cntk : BlockRule::paper; },
        .show = [](const S& s) { return quoted(s.update.block_rule == BlockRule::cntk ? "cntk" : "paper"); }},
    SettingKey{.name = "update.outer_momentum",
               .kind = K::number,
               .help = "momentum of the outer update; below 1",
               .example = "0.75",
               .more = "Only for block_momentum and diloco. -1: the default, which is 1 - 1/ranks for block_momentum "
                       "and 0.9 for diloco.",
               .range = {-1, 0.999999},
               .store = [](S& s, const V& v) { store_unless<&PolicySettings::outer_momentum>(s.update, v.number, -1); },
               .show = [](const S& s) { return show(s.update.outer_momentum, -1); }},
    SettingKey{
        .name = "update.time_constant",
        .kind = K::number,
        .help = "samples after which the outer momentum has faded to 1/e",
        .example = "50000",
        .more =
            "Only for block_momentum. Replaces outer_momentum, which becomes exp(-block / time_constant). 0: not used.",
        .range = {0, static_cast<double>(kMostSamples)},
        .store = [](S& s, const V& v) { store_unless<&PolicySettings::time_constant>(s.update, v.number, 0); },
        .show = [](const S& s) { return show(s.update.time_constant, 0); }},
    SettingKey{
        .name = "update.outer_rate",
        .kind = K::number,
        .help = "rate of the outer update",
        .example = "0.7",
        .more = "Only for block_momentum and diloco. 0: the default, which is 1 for block_momentum and 0.7 for diloco.",
        .range = {0, 1000},
        .store = [](S& s, const V& v) { store_unless<&PolicySettings::outer_rate>(s.update, v.number, 0); },
        .show = [](const S& s) { return show(s.update.outer_rate, 0); }},
    SettingKey{.name = "update.nesterov",
               .kind = K::boolean,
               .help = "whether the outer momentum looks ahead",
               .example = "false",
               .more = "Only for block_momentum and diloco.",
               .store = [](S& s, const V& v) { s.update.nesterov = v.boolean; },
               .show = [](const S& s) { return bool_text(s.update.nesterov); }},
    SettingKey{.name = "update.reset_momentum",
               .kind = K::boolean,
               .help = "whether the optimizer's state is cleared after each block",
               .example = "false",
               .more = "Only for block_momentum.",
               .store = [](S& s, const V& v) { s.update.reset_momentum = v.boolean; },
               .show = [](const S& s) { return bool_text(s.update.reset_momentum); }},
    SettingKey{
        .name = "update.compress",
        .kind = K::choice,
        .help = "number type to which gradients and deltas are rounded when they are sent between nodes",
        .example = "\"bf16\"",
        .more =
            "bf16: half the bytes for gradients. The gradients of each rank are rounded to the nearest; sums and "
            "parameters stay f32. Ranks of one node share memory and send no gradients, so nothing is rounded there.",
        .choices = kFilters,
        .store = [](S& s, const V& v) { s.filter.kind = v.text == "bf16" ? FilterKind::bf16 : FilterKind::none; },
        .show = [](const S& s) { return quoted(name_of(s.filter.kind)); }},
    SettingKey{.name = "update.error_feedback",
               .kind = K::boolean,
               .help = "whether what rounding takes away is added to what the rank sends next",
               .example = "true",
               .more = "Only with update.compress. Takes as much memory at each rank as its gradients, and is saved in "
                       "checkpoints.",
               .store = [](S& s, const V& v) { s.filter.error_feedback = v.boolean; },
               .show = [](const S& s) { return bool_text(s.filter.error_feedback); }},
    SettingKey{.name = "update.staleness",
               .kind = K::integer,
               .help = "for ssp: number of steps that a rank may be ahead of the slowest one",
               .example = "3",
               .more = "0: as sync, but through the shards.",
               .range = {0, 1 << 20},
               .store = [](S& s, const V& v) { s.update.staleness = static_cast<std::uint32_t>(v.integer); },
               .show = [](const S& s) { return std::to_string(s.update.staleness); }},
    SettingKey{.name = "update.divide_by_staleness",
               .kind = K::boolean,
               .help = "whether the rate of an update is lowered when its gradient comes late",
               .example = "true",
               .more = "Only for async and ssp. The rate is divided by 1 + the number of updates since the parameters "
                       "for this gradient were read.",
               .store = [](S& s, const V& v) { s.update.divide_by_staleness = v.boolean; },
               .show = [](const S& s) { return bool_text(s.update.divide_by_staleness); }},
    SettingKey{.name = "update.ramp_from",
               .kind = K::number,
               .help = "for async: factor on the rate of a rank's first updates",
               .example = "0.2",
               .more = "The factor grows by ramp_by after every ramp_every updates of that rank, up to 1. 1: no ramp.",
               .range = {1e-6, 1},
               .store = [](S& s, const V& v) { s.update.ramp_from = v.number; },
               .show = [](const S& s) { return number_text(s.update.ramp_from); }},
    SettingKey{.name = "update.ramp_by",
               .kind = K::number,
               .help = "for async: how much the ramp's factor grows each time",
               .example = "0.2",
               .range = {1e-6, 1},
               .store = [](S& s, const V& v) { s.update.ramp_by = v.number; },
               .show = [](const S& s) { return number_text(s.update.ramp_by); }},
    SettingKey{.name = "update.ramp_every",
               .kind = K::integer,
               .help = "for async: number of a rank's updates after which the ramp's factor grows",
               .example = "600",
               .range = {1, 1 << 30},
               .store = [](S& s, const V& v) { s.update.ramp_every = static_cast<std::uint32_t>(v.integer); },
               .show = [](const S& s) { return std::to_string(s.update.ramp_every); }},
    SettingKey{
        .name = "update.elasticity",
        .kind = K::number,
        .help = "for easgd: how far a rank and the average move toward each other, as a fraction of their distance",
        .example = "0.2",
        .more = "At most 1 / ranks. 0: the default, 0.9 / ranks.",
        .range = {0, 1},
        .store = [](S& s, const V& v) { s.update.elasticity = v.number; },
        .show = [](const S& s) { return number_text(s.update.elasticity); }},
    SettingKey{
        .name = "update.digest_steps",
        .kind = K::integer,
        .help = "steps from one comparison of all ranks' weights to the next",
        .example = "1000",
        .more =
            "Each rank's device computes a checksum (xxh3) of each tensor of its weights, after the step in its "
            "stream. The run ends when one differs from rank 0's, and names the tensor and the rank. The comparison "
            "happens after the next step that leaves all ranks with equal weights: where ranks work locally, the end "
            "of a block; under async, ssp and easgd, a step before an evaluation, a checkpoint or a switch. 0: none.",
        .range = {0, 1 << 30},
        .store = [](S& s, const V& v) { s.digest_steps = static_cast<std::uint64_t>(v.integer); },
        .show = [](const S& s) { return std::to_string(s.digest_steps); }},
    SettingKey{
        .name = "update.log",
        .kind = K::text,
        .help = "folder for logs of the contributions that hosted shards apply, relative to the working directory",
        .example = "\"run/updates\"",
        .more = "Only for async, ssp and easgd. Each shard writes 16 bytes for each contribution that it applies. With "
                "them update.replay repeats the run. Every rank writes on its own host; an existing log is not "
                "overwritten. \"\": none.",
        .store = [](S& s, const V& v) { s.update_log = v.text; },
        .show = [](const S& s) { return quoted(s.update_log); }},
    SettingKey{
        .name = "update.replay",
        .kind = K::text,
        .help = "folder of the logs of an earlier run, whose order the shards follow",
        .example = "\"run/updates\"",
        .more = "With the settings of that run and the same number of ranks, this run ends with the same bits, however "
                "ranks are scheduled. \"\": shards apply contributions in the order in which they arrive.",
        .store = [](S& s, const V& v) { s.update_replay = v.text; },
        .show = [](const S& s) { return quoted(s.update_replay); }},
    SettingKey{.name = "update.switch",
               .kind = K::switches,
               .help = "other policies later in the run",
               .example = "[{ at_epoch = 2, policy = \"local_sgd\", every_steps = 8 }]",
               .more =
                   "Each entry has a policy, the policy's settings, and one of at_step (number of steps taken before), "
                   "at_epoch (counted from 1), at_samples (number of samples that all ranks have taken before) and "
                   "at_straggler. Entries are written in the order in which they begin. The last step of a policy "
                   "completes every exchange, so all ranks begin the next policy with the same weights. at_straggler = "
                   "2.5: the policy begins once, some steps after a window of steps in which the slowest rank took 2.5 "
                   "times the median time to load, compute and update; the entries after it are then ignored.",
               .check = check_switches,
               .store = store_switches,
               .show = show_switches},
    SettingKey{
        .name = "update.group",
        .kind = K::switches,
        .help = "groups of parameters with a policy or an optimizer of their own, as tables [[update.group]]",
        .example = "[{ name = \"biases\", match = [\"*.bias\"], policy = \"sync\", optimizer = { rate = 0.01 } }]",
        .more = "Each has a name, match (one or several names of parameters, in which `*` stands for any characters), "
                "and any of the keys of [update]. A group that names a policy starts from that policy's defaults, any "
                "other group from [update]. optimizer: its own rule, rate (the base of the schedule; 0: its parameters "
                "do not change), momentum, beta1, beta2, alpha, epsilon, weight_decay. A parameter is in at most one "
                "group; parameters that no group matches follow [update].",
        .check = check_groups,
        .store = store_groups,
        .show = show_groups},
};

}  // namespace

std::span<const SettingKey> update_keys() { return kUpdate; }

std::vector<std::string_view> policies_of(std::string_view key) {
  if (key == "update.distributed_after") {
    return {"double_buffered", "local_sgd", "post_local_sgd", "model_averaging", "block_momentum", "diloco", "easgd",
            "async",           "ssp"};
  }
  if (key == "update.accumulate") return {"sync"};
  if (key == "update.every_steps") return {"local_sgd", "post_local_sgd", "diloco", "easgd"};
  if (key == "update.staleness") return {"ssp"};
  if (key == "update.divide_by_staleness") return {"async", "ssp"};
  if (key == "update.ramp_from" || key == "update.ramp_by" || key == "update.ramp_every") return {"async"};
  if (key == "update.elasticity") return {"easgd"};
  if (key == "update.block_samples") return {"model_averaging", "block_momentum"};
  if (key == "update.rule" || key == "update.reset_momentum" || key == "update.time_constant") {
    return {"block_momentum"};
  }
  if (key == "update.outer_momentum" || key == "update.outer_rate" || key == "update.nesterov") {
    return {"block_momentum", "diloco"};
  }
  return {};
}

}  // namespace troupe::detail

namespace troupe {

PolicySettings parse_policy(std::string_view name, std::span<const std::string> settings) {
  Settings all;
  const auto take = [&all](std::string_view key_name, const std::string& written) {
    const detail::SettingKey* const key = detail::policy_key(key_name);
    TROUPE_CHECK(key != nullptr, Code::invalid, detail::quoted(key_name.substr(0, detail::kShownBytes)),
                 " is no setting of a policy; docs/app-toml.md has those of [update]");
    auto value = detail::parse_toml_value(key->kind == detail::ValueKind::choice ? detail::quoted(written) : written);
    TROUPE_CHECK(value.has_value(), Code::invalid, key_name, ": cannot read ",
                 detail::quoted(written.substr(0, detail::kShownBytes)), " as a value");
    const auto finding = detail::check_value(*key, *value);
    TROUPE_CHECK(!finding, Code::invalid, key_name, " ", finding->text);
    key->store(all, *value);
  };
  take("policy", std::string{name});
  std::set<std::string_view> given;
  for (const std::string& setting : settings) {
    const std::string_view key = std::string_view{setting}.substr(0, setting.find('='));
    TROUPE_CHECK(key.size() < setting.size() && key != "policy", Code::invalid,
                 detail::quoted(setting.substr(0, detail::kShownBytes)),
                 " is no setting of a policy; write settings as every_steps=8");
    TROUPE_CHECK(given.insert(key).second, Code::invalid, key, " is given twice");
    take(key, setting.substr(key.size() + 1));
    const std::string wrong = detail::meaningless(key, all.update);
    TROUPE_CHECK(wrong.empty(), Code::invalid, wrong);
  }
  const std::string wrong = contradiction(all.update);
  TROUPE_CHECK(wrong.empty(), Code::invalid, wrong);
  return all.update;
}

}  // namespace troupe
