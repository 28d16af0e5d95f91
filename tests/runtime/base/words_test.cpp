#include "runtime/base/words.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace troupe {
namespace {

TEST(Words, HaveANumberOnlyIfAllOfThemIsOneThatTheTypeHolds) {
  EXPECT_EQ(number_in<std::uint16_t>("65535"), 65535);
  EXPECT_EQ(number_in<std::int32_t>("-7"), -7);
  EXPECT_EQ(number_in<std::uint64_t>("ff", 16), 255U);
  EXPECT_EQ(number_in<double>("2.5e1"), 25.0);
  for (const char* wrong : {"", "65536", "-1", "+1", " 1", "1 ", "1x", "0x1"})
    EXPECT_EQ(number_in<std::uint16_t>(wrong), std::nullopt) << wrong;
  EXPECT_EQ(number_in<double>("1,5"), std::nullopt);
}

TEST(Words, AreSplitAtACharacterWithNothingBehindTheLastOne) {
  EXPECT_EQ(split("a,b,,c", ','), (std::vector<std::string>{"a", "b", "", "c"}));
  EXPECT_EQ(split("a,", ','), std::vector<std::string>{"a"});
  EXPECT_TRUE(split("", ',').empty());
}

TEST(Words, GroupTheDigitsOfANumberByThrees) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(std::numeric_limits<std::uint64_t>::max()), "18,446,744,073,709,551,615");
}

}  // namespace
}  // namespace troupe
