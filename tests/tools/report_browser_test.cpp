// The page of a run in a real browser: nothing on its console, nothing asked of a network, curves, readable colours in
// both schemes, no labels over each other, nothing wider than the window.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "apps/report/page.hpp"
#include "tests/support/process.hpp"
#include "tests/tools/report_records.hpp"

namespace troupe::report {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

/// The browser's path; empty: there is none.
std::string browser() {
  const char* const path = std::getenv("PATH");
  std::istringstream folders{path != nullptr ? path : ""};
  for (std::string folder; std::getline(folders, folder, ':');)
    for (const char* name : {"/chromium", "/chromium-browser", "/google-chrome"})
      if (::access((folder + name).c_str(), X_OK) == 0) return folder + name;
  return {};
}

/// Looks at the page from inside it, and writes what it finds where the test can read it. A size of 0 is left out: such
/// text is not shown.
constexpr const char* kLook = R"js(
<script>
  const rgb = (color) => color.match(/[\d.]+/g).slice(0, 3).map(Number);
  const brightness = (color) => {
    const [r, g, b] = rgb(color).map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [low, high] = [brightness(a), brightness(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const found = {curves: 0, areas: 0, overlaps: [], outside: [], pale: [], resources: 0};
  const back = getComputedStyle(document.body).backgroundColor;
  found.back = brightness(back);
  found.text = contrast(back, getComputedStyle(document.body).color);
  found.resources = performance.getEntriesByType('resource').length;
  found.sideways = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  for (const svg of document.querySelectorAll('figure > svg')) {
    const card = getComputedStyle(svg.parentElement).backgroundColor;
    for (const curve of svg.querySelectorAll('path.curve')) {
      if (curve.getTotalLength() > 0) ++found.curves;
      if (contrast(card, getComputedStyle(curve).stroke) < 3) found.pale.push(curve.getAttribute('class'));
    }
    for (const area of svg.querySelectorAll('path.area')) {
      if (area.getTotalLength() > 0) ++found.areas;
    }
    const texts = [...svg.querySelectorAll('text')].map((text) => [text.textContent, text.getBBox()]);
    const view = svg.viewBox.baseVal;
    for (const [i, [a, one]] of texts.entries()) {
      if (one.x < 0 || one.y < 0 || one.x + one.width > view.width || one.y + one.height > view.height) found.outside.push(a);
      for (const [b, two] of texts.slice(i + 1)) {
        if (one.x < two.x + two.width && two.x < one.x + one.width && one.y < two.y + two.height && two.y < one.y + one.height)
          found.overlaps.push(a + ' / ' + b);
      }
    }
  }
  const out = document.createElement('pre');
  out.id = 'found';
  out.textContent = JSON.stringify(found);
  document.body.append(out);
</script>
)js";

/// The page with kLook in it; its rule against scripts is lifted for that.
std::string looked_at(std::string page) {
  const std::size_t rule = page.find("<meta http-equiv=\"Content-Security-Policy\"");
  page.erase(rule, page.find('>', rule) + 1 - rule);
  return page.insert(page.find("</body>"), kLook);
}

enum class Scheme { light, dark };

class ReportInABrowser : public ::testing::Test {
 protected:
  void SetUp() override {
    if (browser().empty()) GTEST_SKIP() << "no chromium here: apt-get install chromium";
    std::string pattern = ::testing::TempDir() + "/troupe-browser-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  struct Seen {
    std::string dom;
    std::string console;
  };
  Seen open(const std::string& page, Scheme scheme = Scheme::light, int width = 1200) {
    std::ofstream{folder_ / "report.html"} << page;
    troupe::testing::ProgramStart start;
    start.arguments = {browser(),
                       "--headless",
                       "--no-sandbox",
                       "--disable-gpu",
                       "--disable-dev-shm-usage",
                       "--no-first-run",
                       "--disable-background-networking",
                       "--enable-logging=stderr",
                       "--user-data-dir=" + (folder_ / "profile").string(),
                       "--window-size=" + std::to_string(width) + ",1600",
                       std::string{"--blink-settings=preferredColorScheme="} + (scheme == Scheme::dark ? "0" : "1"),
                       "--dump-dom",
                       "file://" + (folder_ / "report.html").string()};
    start.environment = {{"HOME", folder_.string()}};
    troupe::testing::Program program{start};
    EXPECT_EQ(program.wait(100s), 0) << program.err();
    return {program.out(), program.err()};
  }
  json look(const RunRecord& record, Scheme scheme = Scheme::light, int width = 1200) {
    const Seen seen = open(looked_at(page_of(record)), scheme, width);
    EXPECT_THAT(seen.console, Not(HasSubstr(":CONSOLE")));
    const std::string begin = "<pre id=\"found\">";
    const std::size_t from = seen.dom.find(begin);
    if (from == std::string::npos) {
      ADD_FAILURE() << "the page did not come to its end:\n" << seen.console;
      return {};
    }
    std::string found = seen.dom.substr(from + begin.size(), seen.dom.find("</pre>", from) - from - begin.size());
    for (std::size_t at; (at = found.find("&gt;")) != std::string::npos;) found.replace(at, 4, ">");
    for (std::size_t at; (at = found.find("&lt;")) != std::string::npos;) found.replace(at, 4, "<");
    for (std::size_t at; (at = found.find("&amp;")) != std::string::npos;) found.replace(at, 5, "&");
    return json::parse(found);
  }
  static void expect_tidy(const json& found) {
    EXPECT_EQ(found["overlaps"], json::array());
    EXPECT_EQ(found["outside"], json::array());
    EXPECT_EQ(found["pale"], json::array());
    EXPECT_EQ(found["resources"], 0);
    EXPECT_LE(found["sideways"], 0);
    EXPECT_GE(found["text"], 7);
  }

  std::filesystem::path folder_;
};

TEST_F(ReportInABrowser, IsShownAsItIsWithoutAWordOnTheConsole) {
  const Seen seen = open(page_of(testing::run_of(20)));
  EXPECT_THAT(seen.console, Not(HasSubstr(":CONSOLE")));
  EXPECT_THAT(seen.dom, HasSubstr("<path class=\"curve train\""));
}

TEST_F(ReportInABrowser, WouldBeHeardOnTheConsole) {
  const Seen seen = open("<!DOCTYPE html><script>nothing.is.here</script>");
  EXPECT_THAT(seen.console, HasSubstr(":CONSOLE"));
}

TEST_F(ReportInABrowser, HasItsCurvesOnALightGround) {
  const json found = look(testing::run_of(20), Scheme::light);
  expect_tidy(found);
  EXPECT_GT(found["back"], 0.8);
  EXPECT_EQ(found["curves"], 5);  // loss and accuracy twice, samples/s
  EXPECT_EQ(found["areas"], 7);
}

TEST_F(ReportInABrowser, HasItsCurvesOnADarkGround) {
  const json found = look(testing::run_of(20), Scheme::dark);
  expect_tidy(found);
  EXPECT_LT(found["back"], 0.05);
  EXPECT_EQ(found["curves"], 5);
}

TEST_F(ReportInABrowser, IsTidyAfterOneEpochAndAfterAThousand) {
  expect_tidy(look(testing::run_of(1)));
  expect_tidy(look(testing::run_of(1000)));
}

TEST_F(ReportInABrowser, IsTidyWithALossThatIsNoNumber) {
  const json found = look(testing::run_with_nan_from(3, 8), Scheme::dark);
  expect_tidy(found);
  EXPECT_EQ(found["curves"], 5);
  expect_tidy(look(testing::run_with_nan_from(1, 8)));
}

TEST_F(ReportInABrowser, BreaksPathsThatAreLongerThanAPhoneIsWide) {
  expect_tidy(look(testing::run_with_long_paths(), Scheme::light, 500));
}

}  // namespace
}  // namespace troupe::report
