#include "runtime/base/trace.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

json written(const Trace& trace, std::uint32_t process = 0) {
  std::ostringstream out;
  trace.write(out, process, "rank \"0\"");
  return json::parse(out.str());
}

std::vector<json> spans_of(const json& events) {
  std::vector<json> spans;
  for (const json& event : events)
    if (event.at("ph") == "X") spans.push_back(event);
  return spans;
}

TEST(Trace, WritesRowsAndSpansAsChromesTracingReadsThem) {
  Trace trace;
  TraceRow& stream = trace.row("compute");
  TraceRow& lane = trace.row("bulk lane");
  const auto begin = Clock::now();
  stream.span("forward", begin, begin + 1500us, {.step = 7});
  stream.span("update", begin + 2ms, begin + 2ms + 250ns, {.step = 7, .bucket = 2});
  lane.span("move", begin, begin + 1us);
  const json events = written(trace, 3);
  std::vector<std::string> rows;
  for (const json& event : events) {
    EXPECT_EQ(event.at("pid"), 3);
    if (event.at("name") == "process_name") {
      EXPECT_EQ(event.at("args").at("name"), "rank \"0\"");
    }
    if (event.at("name") == "thread_name") rows.push_back(event.at("args").at("name"));
  }
  EXPECT_THAT(rows, ::testing::ElementsAre("compute", "bulk lane"));
  const std::vector<json> spans = spans_of(events);
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(spans[0].at("name"), "forward, step 7");
  EXPECT_EQ(spans[0].at("dur"), 1500.0);
  EXPECT_EQ(spans[1].at("name"), "update, step 7, bucket 2");
  EXPECT_EQ(spans[1].at("args"), (json{{"phase", "update"}, {"step", 7}, {"bucket", 2}}));
  EXPECT_EQ(spans[1].at("dur"), 0.25);
  EXPECT_NEAR(spans[1].at("ts").get<double>() - spans[0].at("ts").get<double>(), 2000,
              1);  // doubles of so many microseconds
  EXPECT_EQ(spans[2].at("name"), "move");
  EXPECT_NE(spans[2].at("tid"), spans[0].at("tid"));
}

TEST(Trace, IsJsonWhateverLettersANameHas) {
  Trace trace;
  TraceRow& row = trace.row("a\\b \"c\"\td\ne\x1b \xff \xc3\xa4");
  row.span("work", Clock::now(), Clock::now());
  std::vector<std::string> rows;
  for (const json& event : written(trace))
    if (event.at("name") == "thread_name") rows.push_back(event.at("args").at("name"));
  EXPECT_THAT(rows, ::testing::ElementsAre("a\\b \"c\"\td\ne\\x1b \\xff \xc3\xa4"));
}

TEST(Trace, TellsTimesOfTheEpochSoThatProcessesOfAHostFitTogether) {
  Trace trace;
  TraceRow& row = trace.row("row");
  const auto before = std::chrono::system_clock::now();
  { const TraceSpan span(&row, "now"); }
  const double ts = spans_of(written(trace)).at(0).at("ts");
  const auto since = std::chrono::duration<double, std::micro>(before.time_since_epoch()).count();
  EXPECT_NEAR(ts, since, 10e6);
}

TEST(Trace, KeepsWhatFitsAndSaysThatItIsFull) {
  Trace trace{3000};
  TraceRow& one = trace.row("one");
  TraceRow& two = trace.row("two");
  for (int i = 0; i < 2500; ++i) (i % 2 == 0 ? one : two).span("work", {}, {}, {});
  EXPECT_FALSE(trace.is_full());
  for (int i = 0; i < 2500; ++i) one.span("work", {}, {}, {});
  EXPECT_TRUE(trace.is_full());
  EXPECT_EQ(spans_of(written(trace)).size(), 3000U);
}

TEST(Trace, MayBeWrittenWhileRowsGoOn) {
  Trace trace;
  TraceRow& row = trace.row("busy");
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < 50'000 && !stop; ++i) row.span("work", {}, {}, {.step = i});
  });
  for (int i = 0; i < 5; ++i) {
    const std::vector<json> spans = spans_of(written(trace));
    for (std::size_t s = 0; s < spans.size(); ++s) ASSERT_EQ(spans[s].at("args").at("step"), s);
  }
  stop = true;
  writer.join();
}

TEST(Trace, OfSeveralProcessesIsJoinedFromTheirParts) {
  const std::string file = ::testing::TempDir() + "/joined-trace.json";
  for (const std::uint32_t process : {0U, 2U}) {
    Trace trace;
    TraceRow& row = trace.row("row");
    for (std::uint64_t step = 0; step < 3; ++step) row.span("work", {}, {}, {.step = step});
    std::ofstream out{trace_part(file, process)};
    trace.write(out, process, "process");
  }
  EXPECT_EQ(join_trace_parts(file, 3), 2U) << "one wrote nothing";
  std::ifstream in{file};
  const std::vector<json> spans = spans_of(json::parse(in));
  ASSERT_EQ(spans.size(), 6U);
  EXPECT_EQ(spans[0].at("pid"), 0);
  EXPECT_EQ(spans[5].at("pid"), 2);
  for (const std::uint32_t process : {0U, 2U}) EXPECT_FALSE(std::ifstream{trace_part(file, process)}.good());
  EXPECT_EQ(join_trace_parts(file + ".none", 3), 0U);
}

/// Writes the part of `process` with one span.
void write_part(const std::string& file, std::uint32_t process) {
  Trace trace;
  trace.row("row").span("work", {}, {}, {});
  std::ofstream out{trace_part(file, process)};
  trace.write(out, process, "process");
}

TEST(Trace, ThatCannotBeWrittenLeavesNoPartsBehind) {
  const std::string folder = ::testing::TempDir() + "/trace-is-a-folder.json";
  std::filesystem::create_directories(folder);
  for (const std::uint32_t process : {0U, 1U}) write_part(folder, process);
  EXPECT_THROW(join_trace_parts(folder, 2), Error);
  for (const std::uint32_t process : {0U, 1U}) EXPECT_FALSE(std::filesystem::exists(trace_part(folder, process)));
}

TEST(Trace, OfAProcessThatWasKilledWhileItWroteHasItsCompleteEvents) {
  const std::string file = ::testing::TempDir() + "/cut-trace.json";
  write_part(file, 0);
  const std::uintmax_t size = std::filesystem::file_size(trace_part(file, 0));
  for (std::uintmax_t cut = 0; cut < size; cut += 7) {
    for (const std::uint32_t process : {0U, 1U}) write_part(file, process);
    std::filesystem::resize_file(trace_part(file, 0), cut);
    EXPECT_EQ(join_trace_parts(file, 2), 2U);
    std::ifstream in{file};
    const json events = json::parse(in, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(events.is_array()) << "cut at byte " << cut;
    ASSERT_FALSE(spans_of(events).empty());
    EXPECT_EQ(spans_of(events).back().at("pid"), 1) << "cut at byte " << cut;
  }
}

TEST(TraceSpan, OfNoRowNotesNothing) { const TraceSpan span(nullptr, "nothing", {.step = 1}); }

}  // namespace
}  // namespace troupe
