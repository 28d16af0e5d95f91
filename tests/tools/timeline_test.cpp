#include "apps/report/timeline.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/error.hpp"
#include "runtime/base/trace.hpp"

namespace troupe::report {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

class Timeline : public ::testing::Test {
 protected:
  ~Timeline() override { std::filesystem::remove(file_); }
  std::filesystem::path write(const std::string& text) {
    std::ofstream{file_} << text;
    return file_;
  }
  /// Steps 3 to 5 on one rank, 10 ms each.
  static std::string some_trace() {
    Trace trace;
    TraceRow& stream = trace.row("compute");
    trace.row("never used");
    const auto begin = Clock::now();
    for (std::uint64_t step = 3; step <= 5; ++step) {
      const auto at = begin + step * 10ms;
      stream.span("forward", at, at + 4ms, {.step = step});
      stream.span("backward", at + 4ms, at + 12ms, {.step = step, .bucket = 0});
    }
    std::ostringstream out;
    trace.write(out, 0, "rank 0 on <host>");
    return out.str();
  }
  static std::string failure(const std::function<void()>& work, Code code) {
    try {
      work();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      return error.what();
    }
    return "no error";
  }

 private:
  // Tests run at once, each in a process of its own.
  const std::filesystem::path file_ =
      std::filesystem::path{::testing::TempDir()} / (std::to_string(::getpid()) + "-timeline-test.json");
};

TEST_F(Timeline, ShowsOneStepAndWhatElseWentOnMeanwhilePaler) {
  const auto rows = read_timeline(write(some_trace()));
  ASSERT_EQ(rows.size(), 1U) << "a row without work is left out";
  EXPECT_EQ(rows[0].name, "compute");
  EXPECT_EQ(rows[0].process, "rank 0 on <host>");
  EXPECT_EQ(middle_step(rows), 4U);
  const std::string svg = step_timeline(rows, 4);
  EXPECT_THAT(svg, HasSubstr("Step 4: 12.00 ms"));
  EXPECT_THAT(svg, HasSubstr("rank 0 on &lt;host&gt;"));
  EXPECT_THAT(svg, HasSubstr("forward, step 4: 4.000 ms"));
  EXPECT_THAT(svg, HasSubstr("fill-opacity=\"0.4\"><title>backward, step 3, bucket 0")) << "it reaches into step 4";
  EXPECT_THAT(svg, Not(HasSubstr("step 3: 4.000 ms"))) << "it was over before";
  EXPECT_THAT(svg, Not(HasSubstr("never used")));
}

TEST_F(Timeline, RefusesAStepThatIsNotThereAndWhatIsNoTrace) {
  const auto rows = read_timeline(write(some_trace()));
  EXPECT_THAT(failure([&] { step_timeline(rows, 9); }, Code::invalid), HasSubstr("it has steps 3 to 5"));
  EXPECT_THAT(failure([&] { step_timeline({}, 9); }, Code::invalid), HasSubstr("the trace has no steps"));
  EXPECT_THAT(failure([&] { read_timeline("/nowhere/trace.json"); }, Code::invalid), HasSubstr("/nowhere/trace.json"));
  for (const char* text : {"", "[", "{\"a\": 1}", "[1]", R"([{"name":"a","ph":"X","pid":0,"tid":1}])"})
    EXPECT_THAT(failure([&] { read_timeline(write(text)); }, Code::corrupt), HasSubstr("timeline-test.json")) << text;
}

}  // namespace
}  // namespace troupe::report
