#include "runtime/exchange/policies/policy.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include <fmt/format.h>

#include "runtime/base/error.hpp"
#include "runtime/exchange/policies/policy_entry.hpp"

namespace troupe {
namespace {

using Member = PolicySetting::Member;

#define TROUPE_NAME_OF(name) #name,
constexpr std::array<std::string_view, kPolicyKinds.size()> kNames{TROUPE_POLICIES(TROUPE_NAME_OF)};
#undef TROUPE_NAME_OF
#define TROUPE_ENTRY_OF(name) &policies::name,
constexpr std::array<const PolicyEntry*, kPolicyKinds.size()> kEntries{TROUPE_POLICIES(TROUPE_ENTRY_OF)};
#undef TROUPE_ENTRY_OF

double number_of(const PolicySettings& s, const Member& member) {
  return std::visit([&](auto m) { return static_cast<double>(s.*m); }, member);
}
bool is_given(const PolicySettings& s, const Member& member) {
  return number_of(s, member) != number_of(PolicySettings{}, member);
}

const PolicySetting& setting_of(const Member& member) {
  return *std::ranges::find(policy_settings(), member, &PolicySetting::member);
}

std::string value_text(const PolicySettings& s, const Member& member) {
  const auto text_of = [](auto value) {
    if constexpr (std::is_same_v<decltype(value), BlockRule>) {
      return std::string{name_of(value)};
    } else {
      return fmt::format("{}", value);
    }
  };
  return std::visit([&](auto m) { return text_of(s.*m); }, member);
}

std::string leaf(const PolicySetting& setting) { return std::string{setting.key.substr(setting.key.find('.') + 1)}; }

/// Why a setting that the policy reads is out of range, or repeats another setting; empty: neither.
std::string check_setting(const PolicySettings& s, const PolicyReads& reads) {
  const PolicySetting& setting = setting_of(reads.member);
  const auto [low, high] = setting.range;
  const double number = number_of(s, reads.member);
  if (low < high && !(number >= low && number <= high)) {
    return text(setting.key, " = ", value_text(s, reads.member), " is out of its range, from ", fmt::format("{}", low),
                " to ", fmt::format("{}", high));
  }
  if (reads.unless == nullptr || !is_given(s, reads.member) || !is_given(s, reads.unless)) return {};
  return text(setting.key, " and ", setting_of(reads.unless).key, " say the same thing twice: leave one of them out");
}

}  // namespace

std::string_view name_of(PolicyKind kind) noexcept { return kNames.at(static_cast<std::size_t>(kind)); }
std::string_view name_of(BlockRule rule) noexcept { return rule == BlockRule::paper ? "paper" : "cntk"; }

std::string_view name_of(PolicySwitch::Trigger trigger) noexcept {
  constexpr std::array<std::string_view, 4> kTriggers{"at_step", "at_epoch", "at_samples", "at_straggler"};
  return kTriggers.at(static_cast<std::size_t>(trigger));
}

const PolicyEntry& entry_of(PolicyKind kind) noexcept { return *kEntries.at(static_cast<std::size_t>(kind)); }
bool is_hosted(PolicyKind kind) noexcept { return entry_of(kind).needs.hosted; }
bool works_locally(PolicyKind kind) noexcept { return entry_of(kind).needs.whole_state; }
bool has_verdicts(PolicyKind kind) noexcept { return entry_of(kind).has_verdicts; }

bool reads(PolicyKind kind, const PolicySetting& setting) noexcept {
  return std::ranges::find(entry_of(kind).reads, setting.member, &PolicyReads::member) != entry_of(kind).reads.end();
}

std::vector<PolicyKind> readers_of(const PolicySetting& setting) {
  std::vector<PolicyKind> readers;
  std::ranges::copy_if(kPolicyKinds, std::back_inserter(readers),
                       [&](PolicyKind kind) { return reads(kind, setting); });
  return readers;
}

PolicySettings resolved(PolicySettings given, std::uint32_t ranks) {
  PolicySettings s{.kind = given.kind};
  for (const PolicyReads& reads : entry_of(given.kind).reads) {
    const bool said = is_given(given, reads.member) || (reads.unless != nullptr && is_given(given, reads.unless));
    const double value = reads.fixed + reads.by_ranks / ranks;
    const auto settle = [&](auto m) {
      s.*m = said || !reads.has_default() ? given.*m : static_cast<std::remove_reference_t<decltype(s.*m)>>(value);
    };
    std::visit(settle, reads.member);
  }
  return s;
}

PolicySettings without_outer_momentum(const PolicySettings& policy) {
  const bool blocks = policy.kind == PolicyKind::block_momentum;
  if (!blocks && policy.kind != PolicyKind::diloco) return policy;
  PolicySettings made = resolved(policy, 1);  // the length of a block does not depend on the number of ranks
  made.kind = blocks ? PolicyKind::model_averaging : PolicyKind::local_sgd;
  return made;
}

std::string to_string(const PolicySettings& s) {
  std::string out;
  for (const PolicySetting& setting : policy_settings()) {
    if (reads(s.kind, setting)) out += text(out.empty() ? "" : ", ", leaf(setting), '=', value_text(s, setting.member));
  }
  return text(name_of(s.kind), '(', out, ')');
}

std::vector<std::uint64_t> to_words(const PolicySettings& s) {
  std::vector<std::uint64_t> words{static_cast<std::uint64_t>(s.kind)};
  const auto word_of = [](auto value) {
    if constexpr (std::is_same_v<decltype(value), double>) {
      return std::bit_cast<std::uint64_t>(value);
    } else {
      return static_cast<std::uint64_t>(value);
    }
  };
  for (const PolicySetting& setting : policy_settings())
    words.push_back(std::visit([&](auto m) { return word_of(s.*m); }, setting.member));
  return words;
}

bool from_words(const std::vector<std::uint64_t>& words, PolicySettings& settings) {
  const auto rows = policy_settings();
  if (words.size() != 1 + rows.size() || words[0] >= kPolicyKinds.size()) return false;
  PolicySettings read{.kind = kPolicyKinds[words[0]]};
  const auto take = [](std::uint64_t word, auto& to) {
    using To = std::remove_reference_t<decltype(to)>;
    if constexpr (std::is_same_v<To, double>) {
      to = std::bit_cast<double>(word);
    } else {
      to = static_cast<To>(word);
    }
  };
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::visit([&](auto m) { take(words[i + 1], read.*m); }, rows[i].member);
  if (to_words(read) != words || read.block_rule > BlockRule::cntk) return false;  // a word does not fit its member
  settings = read;
  return true;
}

PolicyNeeds needs_of(const PolicySettings& settings) {
  PolicyNeeds needs = entry_of(settings.kind).needs;
  needs.held |= settings.accumulate > 1;
  return needs;
}

PolicyNeeds needs_of(const std::vector<PolicyPhase>& phases) {
  PolicyNeeds all;
  for (const PolicyPhase& phase : phases) all |= needs_of(phase.policy);
  return all;
}

std::string check_policy(const PolicySettings& s, std::uint32_t ranks, std::uint32_t batch) {
  const PolicyEntry& entry = entry_of(s.kind);
  for (const PolicyReads& reads : entry.reads) {
    if (std::string wrong = check_setting(s, reads); !wrong.empty()) return wrong;
  }
  return entry.check == nullptr ? std::string{} : entry.check(s, ranks, batch);
}

std::unique_ptr<RoundPolicy> make_round_policy(const PolicySettings& settings, std::uint32_t ranks) {
  return entry_of(settings.kind).make(resolved(settings, ranks), ranks);
}

std::string describe(const PolicySettings& s, std::uint32_t ranks) {
  std::string out = text(name_of(s.kind), ": ", entry_of(s.kind).describe(s, ranks));
  if (s.distributed_after != 0) out += text("; sync until ", s.distributed_after, " samples");
  return out;
}

}  // namespace troupe
