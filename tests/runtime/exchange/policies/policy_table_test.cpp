// The guarantees of the entries of policies and their settings, and their agreement with docs/policies.md.

#include "runtime/exchange/policies/policy_entry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "runtime/base/error.hpp"
#include "tests/support/page_table.hpp"

namespace troupe {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(PolicyTable, IsTheOneInDocsPolicies) {
  std::vector<std::string> rows;
  for (const PolicyKind kind : kPolicyKinds) {
    const PolicyEntry& entry = entry_of(kind);
    const std::string name =
        entry.section.empty() ? std::string{name_of(kind)} : text('[', name_of(kind), "](#", entry.section, ')');
    rows.push_back(text("| ", name, " | ", entry.sent, " | ", entry.when, " | ", entry.use_when, " |"));
  }
  EXPECT_EQ(test::table_of("docs/policies.md", "| `update.policy` |"), rows) << "write into docs/policies.md:\n"
                                                                             << test::lines_of(rows);
}

TEST(PolicyTable, HasASectionOfDocsPoliciesForEveryLink) {
  const std::vector<std::string> sections = test::sections_of("docs/policies.md");
  for (const PolicyKind kind : kPolicyKinds) {
    if (const std::string section{entry_of(kind).section}; !section.empty()) {
      EXPECT_THAT(sections, Contains(section));
    }
  }
}

TEST(PolicyTable, HasAMachineForEveryPolicyAndAShardsForThoseThatAreHosted) {
  for (const PolicyKind kind : kPolicyKinds) {
    SCOPED_TRACE(name_of(kind));
    const PolicyEntry& entry = entry_of(kind);
    const PolicySettings settings = resolved({.kind = kind, .distributed_after = 100}, 2);
    EXPECT_EQ(check_policy(settings, 2, 8), "");
    EXPECT_NE(make_round_policy(settings, 2), nullptr);
    EXPECT_THAT(describe(settings, 2), HasSubstr(text(name_of(kind), ": ")));
    EXPECT_EQ(entry.host != nullptr, is_hosted(kind));
    EXPECT_TRUE(entry.pull == nullptr || entry.needs.landing) << "a pull needs what was read beside the weights";
    if (is_hosted(kind)) {
      EXPECT_NE(make_hosted_policy(settings, 2, Rank{}), nullptr);
    } else {
      EXPECT_THROW(make_hosted_policy(settings, 2, Rank{}), Error);
    }
  }
}

TEST(PolicyTable, EverySettingIsReadByAPolicyAndAPolicyReadsSettingsOnce) {
  std::set<std::string_view> keys;
  for (const PolicySetting& setting : policy_settings()) {
    EXPECT_THAT(readers_of(setting), Not(IsEmpty())) << setting.key;
    EXPECT_TRUE(keys.insert(setting.key).second) << setting.key;
  }
  for (const PolicyKind kind : kPolicyKinds) {
    for (const PolicyReads& reads : entry_of(kind).reads) {
      EXPECT_EQ(std::ranges::count(policy_settings(), reads.member, &PolicySetting::member), 1) << name_of(kind);
      EXPECT_EQ(std::ranges::count(entry_of(kind).reads, reads.member, &PolicyReads::member), 1) << name_of(kind);
    }
  }
}

TEST(PolicyTable, SettingsThatWereLeftOpenGetThePolicysNumbers) {
  const PolicySettings block = resolved({.kind = PolicyKind::block_momentum}, 4);
  EXPECT_EQ(block.block_samples, 120000u);
  EXPECT_EQ(block.outer_momentum, 0.75);
  EXPECT_EQ(block.outer_rate, 1);
  EXPECT_EQ(resolved({.kind = PolicyKind::block_momentum, .time_constant = 500}, 4).outer_momentum, -1)
      << "the time constant says it";
  EXPECT_EQ(resolved({.kind = PolicyKind::block_momentum, .outer_momentum = 0}, 4).outer_momentum, 0);
  EXPECT_EQ(resolved({.kind = PolicyKind::diloco, .block_samples = 7}, 4),
            (PolicySettings{.kind = PolicyKind::diloco, .every_steps = 500, .outer_momentum = 0.9, .outer_rate = 0.7}))
      << "diloco has no use for samples";
  EXPECT_EQ(resolved({.kind = PolicyKind::easgd}, 3).elasticity, 0.9 / 3);
}

TEST(PolicyTable, TextsHaveWhatThePolicyReads) {
  EXPECT_EQ(to_string({.kind = PolicyKind::ssp, .staleness = 2}),
            "ssp(distributed_after=0, staleness=2, divide_by_staleness=false)");
  EXPECT_EQ(to_string({.block_samples = 7}), "sync(accumulate=1)");
}

TEST(PolicyTable, ANumberOutOfItsRangeIsRefused) {
  EXPECT_EQ(check_policy({.kind = PolicyKind::async, .ramp_by = 2}, 2, 8),
            "update.ramp_by = 2 is out of its range, from 1e-06 to 1");
  EXPECT_EQ(check_policy({.kind = PolicyKind::ssp, .ramp_by = 2}, 2, 8), "") << "which ssp does not read";
  EXPECT_THAT(contradiction({.kind = PolicyKind::block_momentum, .outer_momentum = 0.5, .time_constant = 1000}),
              HasSubstr("say the same thing twice"));
}

}  // namespace
}  // namespace troupe
