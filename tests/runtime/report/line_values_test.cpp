#include "runtime/report/line_values.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

using Values = std::vector<ReportedValue>;

TEST(ValueCollector, SumsWhatIsReportedUnderANameUntilItIsTaken) {
  ValueCollector values;
  values.add("b", 1);
  values.add("a/x", 2);
  values.add("b", 3);
  EXPECT_EQ(values.take(), (std::vector<ValueSum>{{"a/x", 2, 1}, {"b", 4, 2}}));
  values.add("b", 5);
  EXPECT_EQ(values.take(), (std::vector<ValueSum>{{"b", 5, 1}}));
  EXPECT_TRUE(values.take().empty());
}

TEST(ValueCollector, RefusesWhatIsNoName) {
  ValueCollector values;
  for (const std::string& name : {std::string{}, std::string{"Upper"}, std::string{"a b"}, std::string{"a,b"},
                                  std::string{"\""}, std::string{"a\n"}, std::string(65, 'a')}) {
    try {
      values.add(name, 1);
      ADD_FAILURE() << name << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid) << name;
    }
  }
  values.add(std::string(64, 'a'), 1);
  values.add("train/grad_norm-2.5", 1);
  EXPECT_EQ(values.take().size(), 2u);
}

TEST(ValueCollector, RefusesMoreNamesThanALineMayHave) {
  ValueCollector values;
  for (std::size_t i = 0; i < kMostValueNames; ++i) values.add("v" + std::to_string(i), 1);
  EXPECT_THROW(values.add("another", 1), Error);
  values.add("v7", 1);
}

TEST(LineValues, AreCompleteWhenEveryRankHasToldOfTheStep) {
  LineValues line{2};
  EXPECT_FALSE(line.has_all_until({4}));
  line.add({0}, {4}, false, {});
  EXPECT_FALSE(line.has_all_until({4}));
  line.add({1}, {9}, false, {});
  EXPECT_TRUE(line.has_all_until({4}));
  EXPECT_FALSE(line.has_all_until({9}));
  line.add({0}, {4}, true, {});
  EXPECT_TRUE(line.has_all_until({9}));
  EXPECT_FALSE(line.has_all());
  line.add({1}, {9}, true, {});
  EXPECT_TRUE(line.has_all());
  EXPECT_TRUE(LineValues{0}.has_all());
}

TEST(LineValues, AreTheMeanOverAllCallsOfAllRanks) {
  LineValues line{2};
  line.add({1}, {4}, false, {{"a", 9, 1}});
  line.add({0}, {4}, false, {{"a", 3, 3}, {"b", 1, 1}});
  EXPECT_EQ(line.take({4}), (Values{{"a", 3}, {"b", 1}}));
  EXPECT_TRUE(line.take({4}).empty());
}

TEST(LineValues, GoToTheLineOfTheirStep) {
  LineValues line{2};
  line.add({0}, {4}, false, {{"a", 1, 1}});
  line.add({0}, {9}, false, {{"a", 5, 1}});
  line.add({1}, {4}, false, {});
  line.add({1}, {9}, false, {{"a", 7, 1}});
  EXPECT_EQ(line.take({4}), (Values{{"a", 1}}));
  EXPECT_EQ(line.take({9}), (Values{{"a", 6}}));
}

TEST(LineValues, AreAddedInRankOrderWhoeverTellsFirst) {
  const auto sum = [](std::vector<std::uint32_t> order) {
    LineValues line{3};
    constexpr double kOf[] = {1e16, 1, -1e16};
    for (const std::uint32_t rank : order) line.add({rank}, {0}, false, {{"a", kOf[rank], 1}});
    return line.take({0}).at(0).value;
  };
  EXPECT_EQ(sum({0, 1, 2}), sum({2, 1, 0}));
  EXPECT_EQ(sum({0, 1, 2}), sum({1, 2, 0}));
}

TEST(LineValues, OfWhatIsNotFiniteAreNotFinite) {
  LineValues line{2};
  line.add({0}, {0}, false, {{"a", std::numeric_limits<double>::quiet_NaN(), 1}, {"b", INFINITY, 1}});
  line.add({1}, {0}, false, {{"a", 1, 1}});
  const Values values = line.take({0});
  ASSERT_EQ(values.size(), 2u);
  EXPECT_TRUE(std::isnan(values[0].value));
  EXPECT_TRUE(std::isinf(values[1].value));
}

}  // namespace
}  // namespace troupe
