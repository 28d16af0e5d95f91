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

// What is known of each policy and of each of its settings, as data. The schema of app.toml, the plan, checks, messages
// and docs/policies.md take it from here.
namespace troupe {

/// A setting of policies: a member of PolicySettings, and its key in app.toml.
struct PolicySetting {
  using Member = std::variant<bool PolicySettings::*, std::uint32_t PolicySettings::*, std::uint64_t PolicySettings::*,
                              double PolicySettings::*, BlockRule PolicySettings::*>;

  std::string_view key;  // update.staleness
  Member member;
  std::array<double, 2> range;  // of a number: the smallest and the largest
  std::string_view help;        // this and what follows as in SettingKey
  std::string_view example;
  std::string_view more{};
};
/// In the order in which they are shown.
std::span<const PolicySetting> policy_settings() noexcept;

/// That a policy reads a setting, and what a setting that was left open is then: fixed + by_ranks / ranks. Both 0: it
/// has no default but that of PolicySettings.
struct PolicyReads {
  PolicySetting::Member member;
  double fixed = 0;
  double by_ranks = 0;
  double PolicySettings::*unless = nullptr;  // a setting that says the same in another way: one of the two is given
  bool has_default() const noexcept { return fixed != 0 || by_ranks != 0; }
};

/// A policy: what is known of it, and how its state machines are made, of settings that are checked and resolved.
struct PolicyEntry {
  // The columns of the table in docs/policies.md.
  std::string_view section;  // of that page, which describes it; empty: the one above
  std::string_view sent;
  std::string_view when;
  std::string_view use_when;

  std::span<const PolicyReads> reads;
  PolicyNeeds needs{};        // with one step an update (see needs_of)
  bool has_verdicts = false;  // each update has a round of all ranks
  std::unique_ptr<RoundPolicy> (*make)(const PolicySettings&, std::uint32_t ranks) = nullptr;
  /// The line of a plan, without the policy's name.
  std::string (*describe)(const PolicySettings&, std::uint32_t ranks) = nullptr;
  /// As check_policy, where that takes more than the settings' ranges. `ranks` and `batch` are 0 where they are not
  /// known.
  std::string (*check)(const PolicySettings&, std::uint32_t ranks, std::uint32_t batch) = nullptr;

  // Of hosted policies.
  std::unique_ptr<HostedPolicy> (*host)(const PolicySettings&, std::uint32_t ranks, HostedLedger) = nullptr;
  double PolicySettings::*pull = nullptr;  // workers push weights, which pull the shard's by this part of the distance
  bool (*sums_clocks)(const PolicySettings&) = nullptr;  // shards add up all workers' pushes of a clock to one update
};
const PolicyEntry& entry_of(PolicyKind kind) noexcept;

bool reads(PolicyKind kind, const PolicySetting& setting) noexcept;
/// The policies that do, in their order.
std::vector<PolicyKind> readers_of(const PolicySetting& setting);

namespace policies {
#define TROUPE_DECLARATION(name) extern const PolicyEntry name;
TROUPE_POLICIES(TROUPE_DECLARATION)
#undef TROUPE_DECLARATION
}  // namespace policies

}  // namespace troupe
