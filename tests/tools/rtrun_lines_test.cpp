#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>
#include <unistd.h>
#include <sstream>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "runtime/config/config.hpp"
#include "runtime/config/detail/schema.hpp"
#include "tests/support/process.hpp"
#include "tools/rtrun/completion.hpp"
#include "tools/rtrun/line_forwarder.hpp"

namespace troupe::rtrun {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

class RankLines : public ::testing::Test {
 protected:
  RankLines() {
    std::string pattern = ::testing::TempDir() + "/lines-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~RankLines() override { std::filesystem::remove_all(folder_); }
  /// What stderr shows when rank 1 writes this.
  std::string shown_of(const std::string& written, RankLog& log) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0 || ::write(ends[1], written.data(), written.size()) < 0) return "no pipe";
    ::close(ends[1]);
    CaptureStderr();
    LineForwarder lines{"[rank 1] ", Fd{ends[0]}, log};
    lines.forward();
    lines.flush();
    return GetCapturedStderr();
  }
  std::string kept() const {
    std::ifstream file{folder_ / "rank-1.log"};
    return {std::istreambuf_iterator<char>{file}, {}};
  }
  std::filesystem::path folder_;
};

TEST_F(RankLines, AreAllShownBehindAPrefixWithoutALog) {
  RankLog log{""};
  EXPECT_EQ(shown_of("one\ntwo", log), "[rank 1] one\n[rank 1] two\n");
}

TEST_F(RankLines, AreKeptAndOnlyRtrunsOwnAreShown) {
  RankLog log{folder_ / "rank-1.log"};
  EXPECT_EQ(shown_of("a library speaks\nrtrun: a note\n", log), "[rank 1] rtrun: a note\n");
  EXPECT_EQ(kept(), "a library speaks\nrtrun: a note\n");
  EXPECT_TRUE(log.made());
}

TEST_F(RankLines, AreThoseOfTheProgramThatRuns) {
  RankLog log{folder_ / "rank-1.log", "rttopo"};
  EXPECT_EQ(shown_of("rtrun: a note\nrttopo: error: no memory\n", log), "[rank 1] rttopo: error: no memory\n");
  EXPECT_EQ(log.first_error(), "no memory");
}

TEST_F(RankLines, MakeNoFileWhenThereAreNone) {
  RankLog log{folder_ / "rank-1.log"};
  EXPECT_EQ(shown_of("", log), "");
  EXPECT_FALSE(log.made());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(RankLines, AreShownWhenTheyCannotBeKept) {
  RankLog log{folder_ / "gone" / "rank-1.log"};
  EXPECT_EQ(shown_of("a library speaks\n", log), "[rank 1] a library speaks\n");
}

TEST_F(RankLines, TellTheFirstError) {
  RankLog log{folder_ / "rank-1.log"};
  shown_of("rtrun: error: no memory is left\nrtrun: error: and so on\n", log);
  EXPECT_EQ(log.first_error(), "no memory is left");
}

TEST(Completion, KnowsEveryKeyAndEveryWordItTakesInEveryShell) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = completion_script(shell);
    for (const detail::SettingKey& key : detail::setting_keys())
      EXPECT_THAT(script, HasSubstr(std::string{key.name})) << shell;
    for (const char* word : {"check", "plan", "completion", "set", "resume", "quiet", "json", "generated", "bf16"})
      EXPECT_THAT(script, HasSubstr(word)) << shell;
  }
  EXPECT_EQ(completion_script("tcsh"), "");
}

TEST(Completion, ClosesEveryQuoteInFish) {
  std::istringstream script{completion_script("fish")};
  for (std::string line; std::getline(script, line);) {
    std::size_t quotes = 0;
    for (std::size_t i = 0; i < line.size(); ++i) quotes += line[i] == '\'' && (i == 0 || line[i - 1] != '\\');
    EXPECT_EQ(quotes % 2, 0u) << line;
  }
}

/// What bash would offer for a line.
std::string offered(const std::string& line) {
  testing::ProgramStart start;
  start.arguments = {"bash", "-c", completion_script("bash") + R"(
    COMP_LINE="$1"; COMP_POINT=${#1}; _rtrun; echo "${COMPREPLY[*]}")",
                     "completion", line};
  testing::Program program{start};
  EXPECT_EQ(program.wait(20s), 0);
  EXPECT_EQ(program.err(), "");
  return program.out();
}

TEST(Completion, OffersVerbsOptionsKeysAndWordsInBash) {
  EXPECT_EQ(offered("rtrun chec"), "check\n");
  EXPECT_EQ(offered("rtrun --qui"), "--quiet\n");
  EXPECT_EQ(offered("rtrun check --"), "--set --help\n");
  EXPECT_EQ(offered("rtrun plan --"), "--nodes --ranks --what-if --svg --figures --compare --json --set --help\n");
  EXPECT_EQ(offered("rtrun plan app.toml --what-if g"), "gpus=\n");
  EXPECT_EQ(offered("rtrun app.toml --set data.so"), "data.source=\n");
  EXPECT_EQ(offered("rtrun app.toml --set data.source="), "idx cifar10 folder map shards voc text generated\n");
  EXPECT_EQ(offered("rtrun app.toml --set train.det"), "train.deterministic=\n");
  EXPECT_EQ(offered("rtrun app.toml --set train.deterministic=t"), "true\n");
  EXPECT_EQ(offered("rtrun completion z"), "zsh\n");
}

}  // namespace
}  // namespace troupe::rtrun
