#include "runtime/config_reference.hpp"

#include <gtest/gtest.h>

#include "runtime/config.hpp"
#include "runtime/detail/config_schema.hpp"

namespace troupe {
namespace {

/// What else has to be set so that a key means something.
std::vector<std::string> beside(const std::string& key) {
  if (key == "optimizer.momentum") return {"optimizer.rule=momentum"};
  const auto policies = detail::policies_of(key);
  if (policies.empty()) return {};
  std::vector<std::string> more{"update.policy=" + std::string{policies.front()}};
  if (policies.front() == "post_local_sgd") more.emplace_back("update.distributed_after=100");
  return more;
}

void expect_taken(const KeyReference& key, const std::string& value) {
  std::vector<std::string> overrides = beside(key.key);
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
