#include "runtime/config/reference.hpp"

#include <gtest/gtest.h>

#include "runtime/config/config.hpp"
#include "runtime/config/detail/schema.hpp"

namespace troupe {
namespace {

/// What else has to be set so that `value` of a key means something.
std::vector<std::string> beside(const std::string& key, const std::string& value) {
  if (key == "update.log" || key == "update.replay") return {"update.policy=async"};
  if (key == "update.error_feedback") return {"update.compress=bf16"};
  if (key == "optimizer.rate.warmup_from") return {"optimizer.rate.warmup_epochs=1"};
  const detail::Beside& other = detail::find_setting(key)->beside;
  if (other.key.empty() || (!other.says_something_as_default && value == detail::find_setting(key)->show({})))
    return {};
  std::vector<std::string> more{text(other.key, '=', other.words.front())};
  if (other.words.front() == "step" && !key.ends_with("every_epochs") && !key.ends_with("every_samples"))
    more.emplace_back("optimizer.rate.every_epochs=1");
  if (other.words.front() == "multi_step" && key.ends_with("factor")) more.emplace_back("optimizer.rate.at_epochs=[1]");
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
