// The content that messages transport to other processes.

#include "actors/messages.hpp"

#include <gtest/gtest.h>

#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "actors/exchange/messages.hpp"

namespace troupe {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class T>
T sent(const T& value) {
  std::vector<char> bytes;
  caf::binary_serializer sink{nullptr, bytes};
  const caf::error written = sink(value);
  EXPECT_FALSE(written);
  T read{};
  caf::binary_deserializer source{nullptr, bytes};
  const caf::error wrong = source(read);
  EXPECT_FALSE(wrong);
  return read;
}

class RandomSettings {
 public:
  explicit RandomSettings(std::uint64_t seed) : dice_(seed) {}

  PolicySettings next() {
    PolicySettings s;
    s.kind = kPolicyKinds[below(kPolicyKinds.size())];
    s.distributed_after = whole();
    s.accumulate = static_cast<std::uint32_t>(whole());
    s.every_steps = static_cast<std::uint32_t>(whole());
    s.block_samples = whole();
    s.block_rule = static_cast<BlockRule>(below(2));
    s.outer_momentum = number();
    s.time_constant = number();
    s.outer_rate = number();
    s.nesterov = below(2) == 0;
    s.reset_momentum = below(2) == 0;
    s.staleness = static_cast<std::uint32_t>(whole());
    s.elasticity = number();
    s.ramp_from = number();
    s.ramp_by = number();
    s.ramp_every = static_cast<std::uint32_t>(whole());
    s.divide_by_staleness = below(2) == 0;
    return s;
  }

 private:
  std::uint64_t below(std::uint64_t end) { return std::uniform_int_distribution<std::uint64_t>{0, end - 1}(dice_); }
  std::uint64_t whole() { return below(3) == 0 ? below(4) : dice_(); }
  double number() {
    constexpr double kSpecial[] = {0, -0.0, 1, -1, 0.1, 5e-324, 2.2e-308, 1.7e308, kInfinity, -kInfinity};
    if (below(2) == 0) return kSpecial[below(std::size(kSpecial))];
    return std::ldexp(std::uniform_real_distribution{-1.0, 1.0}(dice_), static_cast<int>(below(200)) - 100);
  }

  std::mt19937_64 dice_;
};

TEST(Messages, RefuseWordsThatAreNoPolicysSettings) {
  const PolicySettings settings{.kind = PolicyKind::ssp, .staleness = 2};
  const std::vector<std::uint64_t> words = to_words(settings);
  PolicySettings read;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::vector<std::uint64_t> wrong = words;
    wrong[i] = ~std::uint64_t{0};
    if (from_words(wrong, read)) {
      EXPECT_EQ(to_words(read), wrong) << i;  // of a number of 64 bits
    }
  }
  read = {};
  std::vector<std::uint64_t> wrong = words;
  wrong[0] = kPolicyKinds.size();
  EXPECT_FALSE(from_words(wrong, read));
  wrong = words;
  wrong.pop_back();
  EXPECT_FALSE(from_words(wrong, read));
  EXPECT_EQ(read, PolicySettings{});
  EXPECT_TRUE(from_words(words, read));
  EXPECT_EQ(read, settings);
}

TEST(Messages, CarryAnyPolicysSettingsToTheBit) {
  RandomSettings random{20261122};
  for (int i = 0; i < 2000; ++i) {
    const PolicySettings settings = random.next();
    const PolicySettings read = sent(settings);
    ASSERT_EQ(read, settings) << i << ": " << to_string(settings) << " became " << to_string(read);
    ASSERT_EQ(std::signbit(read.elasticity), std::signbit(settings.elasticity)) << i;
    const StepOrder order{.number = 1, .kind = StepOrderKind::switch_policy, .at = 2, .policy = settings, .reason = ""};
    ASSERT_EQ(sent(order).policy, settings) << i;
    ASSERT_EQ(sent(HoldSteps{1, StepOrderKind::switch_policy, settings}).policy, settings) << i;
  }
}

TEST(Messages, CarryALossThatIsNotFinite) {
  EXPECT_TRUE(std::isnan(sent(RankSums{.loss = kNan}).loss));
  EXPECT_TRUE(std::isnan(sent(RankValues{.values = {{"a", kNan, 1}}}).values.at(0).sum));
  EXPECT_EQ(sent(RankValues{.values = {{"a", kInfinity, 1}}}).values.at(0), (ValueSum{"a", kInfinity, 1}));
  EXPECT_TRUE(std::isnan(sent(TestPart{.loss = kNan}).loss));
  EXPECT_TRUE(std::isnan(sent(StepSums{.loss = kNan}).loss));
  EXPECT_EQ(sent(RankSums{.loss = kInfinity}).loss, kInfinity);
  EXPECT_EQ(sent(TestPart{.loss = -kInfinity}).loss, -kInfinity);
  EXPECT_EQ(sent(StepSums{.loss = kInfinity, .samples = 3}).samples, 3U);
}

}  // namespace
}  // namespace troupe
