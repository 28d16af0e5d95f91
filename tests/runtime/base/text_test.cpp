#include <gtest/gtest.h>

#include <locale>

#include "runtime/base/error.hpp"

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

}  // namespace
}  // namespace troupe
