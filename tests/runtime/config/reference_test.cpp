// The documentation of each key of app.toml.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/config/config.hpp"
#include "runtime/config/detail/schema.hpp"

namespace troupe {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

/// The other settings without which `value` of a key has no meaning.
std::vector<std::string> beside(const std::string& key, const std::string& value) {
  if (key == "update.log" || key == "update.replay") return {"update.policy=async"};
  if (key == "update.error_feedback") return {"update.compress=bf16"};
  if (key == "optimizer.rate.warmup_from") return {"optimizer.rate.warmup_epochs=1"};
  if (key == "evaluate.min_change") return {"evaluate.patience=5"};
  if (key == "evaluate.text_prompt" || key == "evaluate.text_top_k" || key == "evaluate.text_temperature")
    return {"data.source=text", "evaluate.text_bytes=200"};
  if (key == "model.onnx_output") return {"model.onnx=m.onnx"};
  const detail::Beside& other = detail::find_setting(key)->beside;
  if (other.key.empty() || (!other.says_something_as_default && value == detail::find_setting(key)->show({})))
    return {};
  std::vector<std::string> more{text(other.key, '=', other.words.front())};
  if (other.words.front() == "step" && !key.ends_with("every_epochs") && !key.ends_with("every_samples"))
    more.emplace_back("optimizer.rate.every_epochs=1");
  if (other.words.front() == "multi_step" && key.ends_with("factor")) more.emplace_back("optimizer.rate.at_epochs=[1]");
  return more;
}

void expect_taken(std::string_view name, const std::string& value) {
  const std::string key{name};
  std::vector<std::string> overrides = beside(key, value);
  overrides.push_back(key + "=" + value);
  EXPECT_NO_THROW(parse_configuration("", "app.toml", overrides)) << key << " = " << value;
}

TEST(ConfigReference, EveryKeySaysWhatItIsAndWhatItTakes) {
  for (const detail::SettingKey& key : detail::setting_keys()) {
    const std::string meaning = detail::meaning(key);
    EXPECT_GT(meaning.size(), 10u) << key.name;
    EXPECT_EQ(meaning.back(), '.') << key.name;
    EXPECT_FALSE(detail::expected(key).empty()) << key.name;
  }
}

TEST(ConfigReference, ExamplesAndDefaultsAreTaken) {
  for (const detail::SettingKey& key : detail::setting_keys()) {
    expect_taken(key.name, std::string{key.example});
    expect_taken(key.name, key.show({}));
  }
}

TEST(ConfigReference, KeysOfAPolicyOrARuleNameThoseThatReadThem) {
  const auto meaning = [](std::string_view key) { return detail::meaning(*detail::find_setting(key)); };
  EXPECT_THAT(meaning("update.staleness"), HasSubstr(". Only with policy = \"ssp\". "));
  EXPECT_THAT(meaning("update.distributed_after"), HasSubstr("Not with policy = \"sync\"."));
  EXPECT_THAT(meaning("update.every_steps"),
              EndsWith("Only with policy = \"local_sgd\", \"post_local_sgd\", \"diloco\" or \"easgd\". 0: the default, "
                       "which is 8 for local_sgd, post_local_sgd and easgd, and 500 for diloco."));
  EXPECT_THAT(meaning("update.outer_momentum"),
              EndsWith("-1: the default, which is 1 - 1/ranks for block_momentum, and 0.9 for diloco."));
  EXPECT_THAT(meaning("update.elasticity"), EndsWith("0: the default, 0.9/ranks."));
  EXPECT_THAT(meaning("optimizer.momentum"),
              HasSubstr("Only with rule = \"momentum\", \"nesterov\", \"rmsprop\" or \"lars\"."));
  EXPECT_THAT(meaning("optimizer.rate.power"), EndsWith("Only with schedule = \"polynomial\"."));
  EXPECT_THAT(meaning("optimizer.clip_norm"), EndsWith("Only with update.policy = \"sync\" or \"double_buffered\"."));
}

}  // namespace
}  // namespace troupe
