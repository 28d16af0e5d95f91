// Passes strings of every kind to the C functions for a second: for every input the answer is a session, or a result
// with a text that says what was wrong.

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "apps/capi/troupe.h"
#include "runtime/base/clock.hpp"
#include "tests/fuzz/seed.hpp"

namespace troupe::testing {
namespace {

using Random = std::mt19937;

std::size_t below(Random& dice, std::size_t end) {
  return std::uniform_int_distribution<std::size_t>(0, end - 1)(dice);
}

/// A seed with some of its bytes changed, left out or doubled; never a zero byte, which ends a C string.
std::string mutated(Random& dice, std::string text) {
  for (std::size_t times = below(dice, 4); times > 0 && !text.empty(); --times) {
    const std::size_t at = below(dice, text.size());
    switch (below(dice, 4)) {
      case 0: text[at] = static_cast<char>(1 + below(dice, 255)); break;
      case 1: text.erase(at, 1 + below(dice, 4)); break;
      case 2: text.insert(at, text.substr(at, 1 + below(dice, 8))); break;
      default: text.insert(at, below(dice, 20) == 0 ? 5000 : 1, "=.[]{}\"'\\\n\x80\xff"[below(dice, 12)]);
    }
  }
  return text;
}

const std::vector<std::string>& seeds() {
  static const std::vector<std::string> kSeeds{"data.batch=4",
                                               "model.units=[8, 8]",
                                               "train.epochs=2",
                                               "optimizer.rule=\"sgd\"",
                                               "optimizer.rate=1e-3",
                                               "train.seed=0xff",
                                               "report.dir='''x'''",
                                               "data = { batch = 3 }",
                                               "=",
                                               "a.b=c",
                                               "train.steps=",
                                               "faults.dead_ms=500",
                                               "\"train\".\"steps\"=4",
                                               "checkpoint.keep=99999999999"};
  return kSeeds;
}

/// Owns what the options of one call point to.
struct Call {
  std::vector<std::string> texts;
  std::vector<const char*> settings;
  std::vector<std::string> names;
  std::vector<std::array<std::uint64_t, 3>> extents;
  std::vector<troupe_parameter> parameters;
  std::string file;
  std::string model;
  troupe_options options{};

  Call(Random& dice, const std::string& folder) {
    texts = {"report.dir=\"" + folder + "\"", "checkpoint.every_steps=0", "train.steps=3", "data.batch=2"};
    for (std::size_t i = below(dice, 4); i > 0; --i)
      texts.push_back(mutated(dice, seeds()[below(dice, seeds().size())]));
    // Only now and then may it come to a session, which takes a hundred times as long as a refusal.
    if (below(dice, 16) != 0) texts.emplace_back("train.epoch=1");
    for (const std::string& text : texts) settings.push_back(text.c_str());
    options.size = below(dice, 50) == 0 ? below(dice, 200) : sizeof options;
    options.settings = settings.data();
    options.settings_count = settings.size();
    if (below(dice, 8) == 0) {
      file = mutated(dice, "/nowhere/app.toml");
      options.file = file.c_str();
    }
    model = mutated(dice, "own");
    options.model = model.c_str();
    options.own_samples = 10;
    add_parameters(dice);
  }

  void add_parameters(Random& dice) {
    constexpr std::array<std::uint64_t, 6> kExtents{1, 2, 7, 0, ~std::uint64_t{0}, std::uint64_t{1} << 41};
    const std::size_t count = below(dice, 4);
    for (std::size_t i = 0; i < count; ++i) {
      names.push_back(mutated(dice, i == 0 ? "weight" : "bias"));
      extents.push_back({});
      for (std::uint64_t& extent : extents.back()) extent = kExtents[below(dice, below(dice, 4) == 0 ? 6 : 3)];
    }
    for (std::size_t i = 0; i < count; ++i)
      parameters.push_back({below(dice, 50) == 0 ? nullptr : names[i].c_str(), extents[i].data(), below(dice, 4), 0.1});
    options.parameters = parameters.data();
    options.parameters_count = count;
  }
};

TEST(CAbi, AnswersEveryStringWithASessionOrAReason) {
  Random dice{chosen_seed()};
  const std::string folder = ::testing::TempDir() + "/troupe-c-abi-" + std::to_string(getpid());
  std::uint64_t sessions = 0;
  std::uint64_t refusals = 0;
  for (const FuzzTime time{std::chrono::seconds{1}}; time.goes_on(sessions > 0 && refusals > 10);) {
    const Call call{dice, folder};
    troupe_session* session = nullptr;
    const troupe_result result = troupe_start(&call.options, &session);
    if (result == TROUPE_OK) {
      ++sessions;
      ASSERT_NE(session, nullptr);
      EXPECT_EQ(troupe_tensor_count(session), call.parameters.size());
      EXPECT_EQ(troupe_tensor_name(session, call.parameters.size()), nullptr);
      troupe_free(session);
    } else {
      ++refusals;
      EXPECT_EQ(session, nullptr);
      EXPECT_GE(result, TROUPE_FAILED);
      EXPECT_LE(result, TROUPE_PEERS_LOST);
      EXPECT_STRNE(troupe_error(), "");
    }
  }
  std::filesystem::remove_all(folder);
  EXPECT_GT(sessions, 0u);
  EXPECT_GT(refusals, 10u);
}

}  // namespace
}  // namespace troupe::testing
