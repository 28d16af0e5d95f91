#include "runtime/model/f16.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

// Against the compiler's own type.
namespace troupe {
namespace {

std::uint16_t bits_of(_Float16 value) { return std::bit_cast<std::uint16_t>(value); }

TEST(F16, HasTheValueOfEachOfItsNumbers) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const auto wanted = static_cast<float>(std::bit_cast<_Float16>(half));
    if (std::isnan(wanted))
      EXPECT_EQ(std::bit_cast<std::uint32_t>(from_f16(half)), 0x7fffffffU);
    else
      EXPECT_EQ(std::bit_cast<std::uint32_t>(from_f16(half)), std::bit_cast<std::uint32_t>(wanted)) << bits;
  }
}

TEST(F16, IsRoundedToTheNearestAndTiesToEven) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float here = from_f16(static_cast<std::uint16_t>(bits));
    if (std::isnan(here)) continue;
    const float next = from_f16(static_cast<std::uint16_t>(bits + 1));
    const float middle = std::isinf(next) ? 65520 : (here + next) / 2;
    const float infinite = std::numeric_limits<float>::infinity();
    for (const float value : {here, middle, std::nextafter(middle, -infinite), std::nextafter(middle, infinite)})
      ASSERT_EQ(to_f16(value), bits_of(static_cast<_Float16>(value))) << value;
  }
}

TEST(F16, OverflowsToInfinityAndKeepsSubnormalsAndNan) {
  EXPECT_EQ(to_f16(65519), 0x7bff);
  EXPECT_EQ(to_f16(65520), 0x7c00);
  EXPECT_EQ(to_f16(-1e30F), 0xfc00);
  EXPECT_EQ(to_f16(0x1p-24F), 1);
  EXPECT_EQ(to_f16(-0x1p-24F), 0x8001);
  EXPECT_EQ(to_f16(0x1p-25F), 0);
  EXPECT_EQ(to_f16(std::nextafter(0x1p-25F, 1.0F)), 1);
  EXPECT_EQ(to_f16(1e-40F), 0);
  EXPECT_EQ(to_f16(-std::numeric_limits<float>::quiet_NaN()), 0x7fff);
}

}  // namespace
}  // namespace troupe
