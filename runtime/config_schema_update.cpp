#include <algorithm>
#include <array>

#include "runtime/detail/config_schema.hpp"

namespace troupe::detail {
namespace {

// In the order of PolicyKind.
constexpr std::array kPolicies{
    Choice{"sync"},           Choice{"double_buffered"}, Choice{"local_sgd"},    Choice{"post_local_sgd"},
    Choice{"model_averaging"}, Choice{"block_momentum"}, Choice{"diloco"},       Choice{"easgd", false},
    Choice{"async", false},   Choice{"ssp", false}};
constexpr std::array kBlockRules{Choice{"paper"}, Choice{"cntk"}};
constexpr std::uint64_t kMostSamples = 9'000'000'000'000'000'000;

std::string show(bool value) { return value ? "true" : "false"; }

/// What an optional number shows when it is left to the policy.
std::string show(const std::optional<double>& value, double absent) { return number_text(value.value_or(absent)); }
template <std::optional<double> PolicySettings::*kMember>
void store_unless(PolicySettings& to, double value, double absent) {
  to.*kMember = value == absent ? std::nullopt : std::optional{value};
}

using S = Settings;
using V = TomlValue;
using K = ValueKind;

constexpr std::array kUpdate{
    SettingKey{
        .name = "update.policy",
        .kind = K::choice,
        .help = "when ranks exchange",
        .example = "\"sync\"",
        .more = "sync: after every step all ranks have the parameters that one rank with all their samples would have, "
                "but for the order of summing. double_buffered: the same one step later, behind the next step's "
                "computation. local_sgd, post_local_sgd, model_averaging, block_momentum, diloco: ranks take several "
                "steps by themselves between rounds. docs/policies.md says which to use when.",
        .choices = kPolicies,
        .today = "update.policy = \"sync\", or one that works locally",
        .store =
            [](S& s, const V& v) {
              const auto at =
                  std::find_if(kPolicies.begin(), kPolicies.end(), [&](const Choice& c) { return c.name == v.text; });
              s.update.kind = static_cast<PolicyKind>(at - kPolicies.begin());
            },
        .show = [](const S& s) { return quoted(name_of(s.update.kind)); }},
    SettingKey{.name = "update.distributed_after",
               .kind = K::integer,
               .help = "samples of all ranks until which the group is synchronous",
               .example = "24000",
               .more = "A warm start: the policy begins with weights that have left the starting point. 0: at once.",
               .range = {0, static_cast<double>(kMostSamples)},
               .store = [](S& s, const V& v) { s.update.distributed_after = static_cast<std::uint64_t>(v.integer); },
               .show = [](const S& s) { return std::to_string(s.update.distributed_after); }},
    SettingKey{.name = "update.accumulate",
               .kind = K::integer,
               .help = "of sync: steps whose gradients are added up to one update",
               .example = "4",
               .more = "As if the batch were so many times as large, without the memory it would take.",
               .range = {1, 1 << 20},
               .store = [](S& s, const V& v) { s.update.accumulate = static_cast<std::uint32_t>(v.integer); },
               .show = [](const S& s) { return std::to_string(s.update.accumulate); }},
    SettingKey{.name = "update.every_steps",
               .kind = K::integer,
               .help = "steps of each rank from one round to the next",
               .example = "8",
               .more = "Of local_sgd, post_local_sgd and diloco. 0: 8, of diloco 500.",
               .range = {0, 1 << 30},
               .store = [](S& s, const V& v) { s.update.every_steps = static_cast<std::uint32_t>(v.integer); },
               .show = [](const S& s) { return std::to_string(s.update.every_steps); }},
    SettingKey{.name = "update.block_samples",
               .kind = K::integer,
               .help = "samples of all ranks from one round to the next",
               .example = "2400",
               .more = "Of model_averaging and block_momentum; a block ends with the first step that fills it. 0: 40000 "
                       "and 120000.",
               .range = {0, static_cast<double>(kMostSamples)},
               .store = [](S& s, const V& v) { s.update.block_samples = static_cast<std::uint64_t>(v.integer); },
               .show = [](const S& s) { return std::to_string(s.update.block_samples); }},
    SettingKey{.name = "update.rule",
               .kind = K::choice,
               .help = "which formula block_momentum follows",
               .example = "\"paper\"",
               .more = "paper: Chen and Huo 2016. cntk: CNTK's learner, whose rate and momentum follow the block's size.",
               .choices = kBlockRules,
               .store =
                   [](S& s, const V& v) {
                     s.update.block_rule = v.text == "cntk" ? BlockRule::cntk : BlockRule::paper;
                   },
               .show = [](const S& s) { return quoted(s.update.block_rule == BlockRule::cntk ? "cntk" : "paper"); }},
    SettingKey{.name = "update.outer_momentum",
               .kind = K::number,
               .help = "momentum of the outer update; below 1",
               .example = "0.75",
               .more = "Of block_momentum and diloco. -1: 1 - 1/ranks, of diloco 0.9.",
               .range = {-1, 0.999999},
               .store = [](S& s, const V& v) { store_unless<&PolicySettings::outer_momentum>(s.update, v.number, -1); },
               .show = [](const S& s) { return show(s.update.outer_momentum, -1); }},
    SettingKey{.name = "update.time_constant",
               .kind = K::number,
               .help = "samples after which the outer momentum has faded to 1/e",
               .example = "50000",
               .more = "Instead of outer_momentum: that becomes exp(-block / time_constant). 0: it is not given.",
               .range = {0, static_cast<double>(kMostSamples)},
               .store = [](S& s, const V& v) { store_unless<&PolicySettings::time_constant>(s.update, v.number, 0); },
               .show = [](const S& s) { return show(s.update.time_constant, 0); }},
    SettingKey{.name = "update.outer_rate",
               .kind = K::number,
               .help = "rate of the outer update",
               .example = "0.7",
               .more = "Of block_momentum and diloco. 0: 1, of diloco 0.7.",
               .range = {0, 1000},
               .store = [](S& s, const V& v) { store_unless<&PolicySettings::outer_rate>(s.update, v.number, 0); },
               .show = [](const S& s) { return show(s.update.outer_rate, 0); }},
    SettingKey{.name = "update.nesterov",
               .kind = K::boolean,
               .help = "whether the outer momentum looks ahead",
               .example = "false",
               .more = "Of block_momentum and diloco.",
               .store = [](S& s, const V& v) { s.update.nesterov = v.boolean; },
               .show = [](const S& s) { return show(s.update.nesterov); }},
    SettingKey{.name = "update.reset_momentum",
               .kind = K::boolean,
               .help = "whether the optimizer's state is cleared after each block",
               .example = "false",
               .more = "Of block_momentum.",
               .store = [](S& s, const V& v) { s.update.reset_momentum = v.boolean; },
               .show = [](const S& s) { return show(s.update.reset_momentum); }},
};

}  // namespace

std::span<const SettingKey> update_keys() { return kUpdate; }

std::vector<std::string_view> policies_of(std::string_view key) {
  if (key == "update.distributed_after") {
    return {"double_buffered", "local_sgd", "post_local_sgd", "model_averaging", "block_momentum", "diloco"};
  }
  if (key == "update.accumulate") return {"sync"};
  if (key == "update.every_steps") return {"local_sgd", "post_local_sgd", "diloco"};
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
