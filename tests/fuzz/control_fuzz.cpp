// Mutates the messages between a run and `rtrun control` for a second: each is accepted or refused.

#include <gtest/gtest.h>

#include <cstring>
#include <iostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "tests/fuzz/damage.hpp"
#include "tests/fuzz/seed.hpp"
#include "tools/rtrun/control.hpp"

namespace troupe::rtrun {
namespace {

const std::vector<std::string>& corpus() {
  static const std::vector<std::string> kCorpus{
      "stop",
      "describe",
      "rebuild",
      "machines",
      "switch sync accumulate=4",
      "switch local_sgd every_steps=8",
      "switch block_momentum block_samples=2400 rule=cntk outer_momentum=0.75 nesterov=true reset_momentum=false",
      "switch diloco every_steps=500 outer_rate=0.7 outer_momentum=0.9",
      "ok from step 12 on: sync",
      "no C:\\\\temp\\nrank 1",
  };
  return kCorpus;
}

std::string mutated(std::mt19937& dice) {
  static constexpr const char* kPieces[] = {" ", "=",  "\\", "\\n",          "-", "1e999", "nan",
                                            "{", "[[", "\"", "every_steps=3"};
  std::string text = corpus()[dice() % corpus().size()];
  for (std::uint32_t times = dice() % 4; times > 0; --times)
    text.insert(dice() % (text.size() + 1), kPieces[dice() % std::size(kPieces)]);
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  if (dice() % 4 != 0) testing::damage(bytes, 0, dice);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(ControlFuzz, TakesOrRefusesWhateverIsSent) {
  const std::uint32_t seed = testing::chosen_seed();
  std::mt19937 dice{seed};
  std::uint64_t taken = 0;
  std::uint64_t refused = 0;
  for (const testing::FuzzTime time{std::chrono::seconds(1)}; time.goes_on(taken > 0 && refused > 0);) {
    const std::string line = mutated(dice);
    try {
      (void)parse_control_request(line);
      ++taken;
    } catch (const Error& error) {
      ASSERT_EQ(error.code() == Code::invalid || error.code() == Code::unsupported, true) << error.what();
      ++refused;
    }
    try {
      const ControlAnswer answer = parse_control_answer(line);
      ASSERT_EQ(parse_control_answer(to_line(answer)).text, answer.text) << line;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::corrupt) << error.what();
    }
  }
  std::cout << "seed " << seed << ": " << taken << " taken, " << refused << " refused\n";
  EXPECT_GT(taken, 0u);
  EXPECT_GT(refused, 0u);
}

}  // namespace
}  // namespace troupe::rtrun
