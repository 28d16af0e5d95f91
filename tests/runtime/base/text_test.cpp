#include <gtest/gtest.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <limits>
#include <locale>
#include <random>

#include "runtime/base/error.hpp"
#include "runtime/base/text_stream.hpp"

namespace troupe {
namespace {

/// Groups of three digits, and a decimal comma, as in many countries.
struct Grouping : std::numpunct<char> {
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
  char do_decimal_point() const override { return ','; }
};

TEST(Text, HasTheSameNumbersWhateverTheLocaleOfTheApp) {
  const std::locale before = std::locale::global(std::locale{std::locale::classic(), new Grouping});
  const std::string written = text(1234567, ' ', 0.5);
  std::locale::global(before);
  EXPECT_EQ(written, "1234567 0.5");
}

template <class T>
void expect_as_in_a_stream(const T& value) {
  TextStream stream;
  stream << value;
  EXPECT_EQ(text(value), stream.str());
}

TEST(Text, HasEveryPartAsAStreamWritesIt) {
  expect_as_in_a_stream("letters");
  expect_as_in_a_stream(std::string("a\0b", 3));
  expect_as_in_a_stream(std::string_view{});
  expect_as_in_a_stream('x');
  expect_as_in_a_stream(true);
  expect_as_in_a_stream(std::numeric_limits<std::int64_t>::min());
  expect_as_in_a_stream(std::numeric_limits<std::uint64_t>::max());
  expect_as_in_a_stream(std::int16_t{-3});
  for (const double special :
       {0.0, -0.0, 1.0, 1e5, 999999.5, 1e6, 1e-4, 1e-5, 1e300, 5e-324, double{INFINITY}, double{NAN}})
    expect_as_in_a_stream(special);
  std::mt19937_64 random{1};
  for (int i = 0; i < 10000; ++i) {
    const std::uint64_t bits = random();
    expect_as_in_a_stream(bits);
    expect_as_in_a_stream(static_cast<std::int32_t>(bits));
    expect_as_in_a_stream(std::bit_cast<double>(bits));
    expect_as_in_a_stream(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
}

TEST(Text, HasHexadecimalNumbersWithoutZerosInFront) {
  EXPECT_EQ(hexadecimal(0), "0");
  EXPECT_EQ(hexadecimal(0x1f0), "1f0");
  EXPECT_EQ(hexadecimal(~std::uint64_t{0}), "ffffffffffffffff");
}

TEST(Text, OfAFailedCheckHasItsParts) {
  try {
    TROUPE_CHECK(false, Code::invalid, "rank ", 3, " has ", 0.25, '%', std::string{" of"}, std::string_view{" all"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    EXPECT_STREQ(error.what(), "rank 3 has 0.25% of all");
  }
}

TEST(Text, OfAFailedSystemCallEndsWithTheReasonWhateverItsPartsDo) {
  try {
    errno = ENOENT;
    TROUPE_CHECK_ERRNO(false, Code::environment, "cannot open ", std::string(1000, 'x'));
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(std::string_view{error.what()}.ends_with(": No such file or directory")) << error.what();
  }
}

}  // namespace
}  // namespace troupe
