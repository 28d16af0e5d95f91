#include "runtime/base/printable.hpp"

#include <gtest/gtest.h>

#include <string_view>

namespace troupe {
namespace {

TEST(Printable, KeepsLettersAndShowsOtherBytesAsNumbers) {
  EXPECT_EQ(printable("two lines,\n\tand \xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\xad"),
            "two lines,\n\tand \xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\xad");
  EXPECT_EQ(printable("\x1b[2J\r\x7f"), "\\x1b[2J\\x0d\\x7f");
  EXPECT_EQ(printable(std::string_view("\0a", 2)),
            "\\x00"
            "a");
}

TEST(Printable, ShowsBytesThatAreNoUtf8) {
  EXPECT_EQ(printable("\xc3"), "\\xc3") << "cut off";
  EXPECT_EQ(printable("\xe2\x82z"), "\\xe2\\x82z");
  EXPECT_EQ(printable("\xff\x80"), "\\xff\\x80");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf") << "longer than needed";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a surrogate pair";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "above the last letter";
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b2J")
      << "a terminal may take it for the beginning of a command";
}

}  // namespace
}  // namespace troupe
