#include "runtime/base/printable.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

namespace troupe {
namespace {

TEST(Printable, KeepsLettersAndShowsOtherBytesAsNumbers) {
  EXPECT_EQ(printable("two lines,\n\tand \xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\xad"),
            "two lines,\n\tand \xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\xad");
  EXPECT_EQ(printable("\x1b[2J\r\x7f"), "\\x1b[2J\\x0d\\u007f");
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
            "\\u009b2J")
      << "a terminal may take it for the beginning of a command";
}

TEST(Printable, HasNoMarkupWhereItIsEscaped) {
  EXPECT_EQ(escaped("<a b='c' d=\"e\">&\x1b"), "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp;\\x1b");
}

TEST(Printable, KeepsALineOfJson) {
  const nlohmann::json json{{"path", "a\x1b[2J\x7f\xc2\x9b\xc3\xa9\"\\\r"}};
  const std::string shown = printable(json.dump());
  EXPECT_EQ(nlohmann::json::parse(shown), json) << shown;
}

TEST(PrintableStream, ShowsWhatIsWrittenAndPassesOnlyItsProgramsCommands) {
  std::ostringstream out;
  {
    PrintableStream printed{out};
    out << "name \x1b[2J, " << control("\x1b[1m") << "bold\r\n" << '\xc3' << '\xa9' << "\n";
    EXPECT_EQ(out.good(), true);
    out << "rest\x1b";
  }
  out << control("\r") << "\x1b[K";  // the stream is again what it was
  EXPECT_EQ(out.str(), "name \\x1b[2J, \x1b[1mbold\\x0d\n\xc3\xa9\nrest\\x1b\r\x1b[K");
}

TEST(PrintableStream, FailsWhenTheStreamBehindItDoes) {
  std::ofstream full{"/dev/full"};
  PrintableStream printed{full};
  full << "lost" << std::flush;
  EXPECT_FALSE(full.good());
}

}  // namespace
}  // namespace troupe
