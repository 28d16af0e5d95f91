#include <gmock/gmock.h>
#include <sched.h>

#include <nlohmann/json.hpp>

#include "runtime/base/error.hpp"
#include "tools/bench/messages/command.hpp"
#include "tools/bench/messages/measures.hpp"
#include "tools/crew/line.hpp"

namespace troupe::bench {
namespace {

Result result(const std::string& impl, std::uint64_t bytes, std::vector<double> us) {
  return {impl, bytes, {{"us", us}}};
}

TEST(MessagesResults, AreJsonLinesWithOneFigureARound) {
  const std::string line = json_line(EndCase{}, result("inline", 8, {0.512345, 34552.9, 0}));
  EXPECT_EQ(line, R"({"bench":"messages","impl":"inline","transport":"shm","bytes":8,"us":[0.5123,34550.0,0]})");
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(MessagesResults, SayWhatWasMeasuredUnlessItIsLatency) {
  EndCase rate;
  rate.what = "rate";
  EXPECT_EQ(nlohmann::json::parse(json_line(rate, {"raw", 8, {{"kps", {3.0}}}}))["what"], "rate");
}

TEST(MessagesResults, SayWhereTensorsLieUnlessItIsTheHostsMemory) {
  EndCase on_gpu;
  on_gpu.memory = "cuda";
  EXPECT_EQ(nlohmann::json::parse(json_line(on_gpu, result("arena", 8, {1})))["memory"], "cuda");
}

TEST(MessagesTable, ShowsMediansAndTheirRatioToRawOfTheSameSize) {
  const std::string table = table_of({result("raw", 8, {1, 9, 2}), result("inline", 8, {3, 3, 100}),
                                      result("raw", 1024, {4}), result("inline", 1024, {4})});
  EXPECT_THAT(table, testing::ContainsRegex("8 +2 +3 \\(1.5x\\)"));
  EXPECT_THAT(table, testing::ContainsRegex("1024 +4 +4 \\(1x\\)"));
}

TEST(MessagesTable, LeavesAGapWhereSomethingWasNotMeasured) {
  EXPECT_THAT(table_of({result("raw", 8, {1}), result("inline", 16, {2})}), testing::ContainsRegex("16 +- +2\n"));
}

TEST(RoundTrips, EndWithNineBatchesAtLeastHoweverShortTheSpan) {
  RoundTrips trips(4, Clock::duration{});
  trips.begin();
  int counted = 1;
  while (trips.again()) ++counted;
  EXPECT_GE(counted, 4 * 9);
  EXPECT_LE(trips.one_way_us(0), trips.one_way_us(0.5));
  EXPECT_LE(trips.one_way_us(0.5), trips.one_way_us(0.99));
}

TEST(PairCpus, AreRefusedWhenThisProcessMayNotUseThem) {
  EXPECT_THROW(choose_cpus({0, CPU_SETSIZE}), Error);
  EXPECT_THROW(choose_cpus({-1, 0}), Error);
}

TEST(LineOfACrew, GivesWhatWasSaidBeforeTheOtherEndWentWithoutReadingWhatItWasTold) {
  auto [here, there] = crew::make_line();
  crew::Line line{std::move(here)};
  {
    const crew::Line other{std::move(there)};
    ASSERT_TRUE(line.say("stop"));
    ASSERT_TRUE(other.say("figures"));
  }
  EXPECT_EQ(line.hear_now(), nlohmann::json("figures"));
  EXPECT_EQ(line.hear_now(), std::nullopt);
}

}  // namespace
}  // namespace troupe::bench
