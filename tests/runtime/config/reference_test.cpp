#include "runtime/config/reference.hpp"

#include <gtest/gtest.h>

#include "runtime/config/config.hpp"
#include "runtime/config/detail/schema.hpp"

namespace troupe {
namespace {

/// What else has to be set so that a key of the rate's table means something.
std::vector<std::string> beside_rate(const std::string& key, const std::string& value) {
  if (!key.starts_with("optimizer.rate.") || (value == "0" && key.find("_f") == key.npos) || value == "[]") return {};
  const std::string leaf = key.substr(std::string_view{"optimizer.rate."}.size());
  if (leaf.starts_with("every_")) return {"optimizer.rate.schedule=step"};
  if (leaf == "factor") return {"optimizer.rate.schedule=exponential", "optimizer.rate.every_epochs=1"};
  if (leaf.starts_with("at_")) return {"optimizer.rate.schedule=multi_step"};
  if (leaf == "power" || leaf == "end_factor" || leaf.starts_with("over_"))
    return {"optimizer.rate.schedule=polynomial"};
  if (leaf == "start_factor" || leaf == "rise") return {"optimizer.rate.schedule=one_cycle"};
  if (leaf == "warmup_from") return {"optimizer.rate.warmup_epochs=1"};
  if (leaf == "reference_batch") return {"optimizer.rate.scale=linear"};
  return {};
}

/// The same of any key.
std::vector<std::string> beside(const std::string& key, const std::string& value) {
  if (key == "optimizer.momentum") return {"optimizer.rule=momentum"};
  if (key == "optimizer.alpha") return {"optimizer.rule=rmsprop"};
  if (key == "update.log" || key == "update.replay") return {"update.policy=async"};
  if (key == "update.error_feedback") return {"update.compress=bf16"};
  if (key.starts_with("train.roll_back")) return {"train.non_finite=roll_back"};
  if (key.starts_with("optimizer.rate.")) return beside_rate(key, value);
  const auto policies = detail::policies_of(key);
  if (policies.empty()) return {};
  std::vector<std::string> more{"update.policy=" + std::string{policies.front()}};
  if (policies.front() == "post_local_sgd") more.emplace_back("update.distributed_after=100");
  return more;
}

void expect_taken(const KeyReference& key, const std::string& value) {
  std::vector<std::string> overrides = beside(key.key, value);
  overrides.push_back(key.key + "=" + value);
  EXPECT_NO_THROW(parse_configuration("", "app.toml", overrides)) << key.key << " = " << value;
}

TEST(ConfigReference, TellsOfEveryKeyThatCanBeRead) {
  std::vector<std::string> told;
  for (const auto& section : settings_reference())
    for (const auto& key : section.keys) told.push_back(key.key);
  std::vector<std::string> read;
  for (const auto& value : parse_configuration("", "app.toml", {}).values) read.push_back(value.key);
  EXPECT_EQ(told, read);
}

TEST(ConfigReference, EveryKeySaysWhatItIsAndWhatItTakes) {
  for (const auto& section : settings_reference()) {
    for (const auto& key : section.keys) {
      EXPECT_GT(key.meaning.size(), 10u) << key.key;
      EXPECT_EQ(key.meaning.back(), '.') << key.key;
      EXPECT_FALSE(key.takes.empty()) << key.key;
    }
  }
}

TEST(ConfigReference, ExamplesAndDefaultsAreTaken) {
  for (const auto& section : settings_reference()) {
    for (const auto& key : section.keys) {
      expect_taken(key, key.example);
      expect_taken(key, key.default_value);
    }
  }
}

}  // namespace
}  // namespace troupe
