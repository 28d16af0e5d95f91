// [[update.group]]: what a group takes over, and that it is shown as it is read.

#include <gtest/gtest.h>

#include "runtime/config/config.hpp"

namespace troupe {
namespace {

Settings read(std::string_view toml) { return parse_configuration(toml, "app.toml", {}).settings; }

constexpr std::string_view kTwoGroups = R"([[update.group]]
name = "biases"
match = "*.bias"
optimizer.rate = 0
[[update.group]]
name = "top"
match = ["l3.weight", "l2.*"]
policy = "local_sgd"
every_steps = 4
switch = [{ at_step = 10, policy = "sync" }]
optimizer = { rule = "momentum", rate = 0.5, momentum = 0.8 }
[update]
policy = "diloco"
every_steps = 50
switch = [{ at_epoch = 3, policy = "sync" }]
[optimizer]
rule = "adamw"
rate = 0.01
weight_decay = 0.1
)";

TEST(ConfigGroups, TakeOverWhatTheyDoNotSay) {
  const Settings all = read(kTwoGroups);
  ASSERT_EQ(all.groups.size(), 2u);
  const Settings::Group& biases = all.groups[0];
  EXPECT_EQ(biases.name, "biases");
  EXPECT_EQ(biases.match, (std::vector<std::string>{"*.bias"}));
  EXPECT_EQ(biases.update, all.update);
  EXPECT_EQ(biases.switches, all.switches);
  Rule still = all.rule;
  still.rate = 0;
  EXPECT_EQ(biases.rule, still);
}

TEST(ConfigGroups, WithAPolicyOfTheirOwnBeginFromItsDefaults) {
  const Settings all = read(kTwoGroups);
  const Settings::Group& top = all.groups.at(1);
  EXPECT_EQ(top.match, (std::vector<std::string>{"l3.weight", "l2.*"}));
  EXPECT_EQ(top.update, (PolicySettings{.kind = PolicyKind::local_sgd, .every_steps = 4}));
  ASSERT_EQ(top.switches.size(), 1u);
  EXPECT_EQ(top.switches[0].at, 10u);
  EXPECT_EQ(top.rule.kind, RuleKind::momentum);
  EXPECT_EQ(top.rule.rate, 0.5);
  EXPECT_EQ(top.rule.momentum, 0.8);
  EXPECT_EQ(top.rule.weight_decay, 0.1);
}

TEST(ConfigGroups, AreShownAsTheyAreRead) {
  const std::string rmsprop = std::string(kTwoGroups) + "[[update.group]]\nname = \"r\"\nmatch = \"l1.weight\"\n" +
                              "optimizer = { rule = \"rmsprop\", momentum = 0.9, alpha = 0.95 }\n";
  const Configuration first = parse_configuration(rmsprop, "app.toml", {});
  std::vector<std::string> shown;
  for (const EffectiveValue& value : first.values)
    if (value.origin != "default") shown.push_back(value.key + "=" + value.value);
  const Configuration second = parse_configuration("", "app.toml", shown);
  EXPECT_EQ(second.settings.groups, first.settings.groups);
  EXPECT_EQ(second.hash(), first.hash());
}

TEST(ConfigGroups, WithoutTheErrorFeedbackOfTheRestAreReadBackAsTheyAreShown) {
  const Configuration first = parse_configuration(
      "[update]\ncompress = \"bf16\"\nerror_feedback = true\n[[update.group]]\nname = \"a\"\nmatch = "
      "\"x\"\nerror_feedback "
      "= false\n",
      "app.toml", {});
  ASSERT_FALSE(first.settings.groups.at(0).compression.error_feedback);
  std::vector<std::string> shown;
  for (const EffectiveValue& value : first.values)
    if (value.origin != "default") shown.push_back(value.key + "=" + value.value);
  EXPECT_EQ(parse_configuration("", "app.toml", shown).settings.groups, first.settings.groups);
}

TEST(ConfigGroups, ChangeTheHashThatRanksCompare) {
  const std::string with = "[[update.group]]\nname = \"a\"\nmatch = \"x\"\n";
  EXPECT_NE(parse_configuration(with, "app.toml", {}).hash(), parse_configuration("", "app.toml", {}).hash());
  EXPECT_NE(parse_configuration(with, "app.toml", {}).hash(),
            parse_configuration(with + "optimizer.rate = 0.5\n", "app.toml", {}).hash());
}

}  // namespace
}  // namespace troupe
