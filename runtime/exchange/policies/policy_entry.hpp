#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/exchange/policies/hosted.hpp"
#include "runtime/exchange/policies/policy.hpp"

// The properties of each policy and of each of its settings, as data. The schema of app.toml, the plan, checks,
// messages and docs/policies.md use this table.
namespace troupe {

/// A setting of policies: a member of PolicySettings, and its key in app.toml.
struct PolicySetting {
  using Member = std::variant<bool PolicySettings::*, std::uint32_t PolicySettings::*, std::uint64_t PolicySettings::*,
                              double PolicySettings::*, BlockRule PolicySettings::*>;

  std::string_view key;  // update.staleness
  Member member;
  std::array<double, 2> range;  // of a number: smallest and largest value
  std::string_view help;        // this and the next two as in SettingKey
  std::string_view example;
  std::string_view more{};
};
/// In the order in which they are shown.
std::span<const PolicySetting> policy_settings() noexcept;

/// A setting that a policy reads, and its value if it is not given: fixed + by_ranks / ranks. Both 0: the policy has no
/// default of its own; the default in PolicySettings applies.
struct PolicyReads {
  PolicySetting::Member member;
  double fixed = 0;
  double by_ranks = 0;
  double PolicySettings::*unless = nullptr;  // another setting for the same quantity: at most one of the two is given
  bool has_default() const noexcept { return fixed != 0 || by_ranks != 0; }
};

/// A policy: its properties, and the factories of its state machines, from checked and resolved settings.
struct PolicyEntry {
  // The columns of the table in docs/policies.md.
  std::string_view section;  // section of that page that describes it; empty: that of the policy above
  std::string_view sent;
  std::string_view when;
  std::string_view use_when;

  std::span<const PolicyReads> reads;
  PolicyNeeds needs{};        // with one step per update (see needs_of)
  bool has_verdicts = false;  // each update has a round of all ranks
  std::unique_ptr<RoundPolicy> (*make)(const PolicySettings&, std::uint32_t ranks) = nullptr;
  /// The text of a plan's line, without the policy's name.
  std::string (*describe)(const PolicySettings&, std::uint32_t ranks) = nullptr;
  /// A check beyond the settings' ranges, for check_policy. `ranks` and `batch` are 0 if they are not
  /// known.
  std::string (*check)(const PolicySettings&, std::uint32_t ranks, std::uint32_t batch) = nullptr;

  // For hosted policies.
  std::unique_ptr<HostedPolicy> (*host)(const PolicySettings&, std::uint32_t ranks, HostedProgress) = nullptr;
  double PolicySettings::*pull = nullptr;  // workers push weights, which pull the shard's by this part of the distance
  bool (*sums_clocks)(const PolicySettings&) = nullptr;  // shards add up all workers' pushes of a clock into one update
};
const PolicyEntry& entry_of(PolicyKind kind) noexcept;

bool reads(PolicyKind kind, const PolicySetting& setting) noexcept;
/// The policies that read the setting, in their order.
std::vector<PolicyKind> readers_of(const PolicySetting& setting);

namespace policies {
#define TROUPE_DECLARATION(name) extern const PolicyEntry name;
TROUPE_POLICIES(TROUPE_DECLARATION)
#undef TROUPE_DECLARATION
}  // namespace policies

}  // namespace troupe
