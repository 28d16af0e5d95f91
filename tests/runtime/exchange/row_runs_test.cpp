#include "runtime/exchange/row_runs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace troupe {
namespace {

using ::testing::ElementsAre;
using Rows = std::vector<std::uint32_t>;

std::vector<RowRun> runs_of(const std::vector<Rows>& parts) {
  const std::vector<std::span<const std::uint32_t>> spans(parts.begin(), parts.end());
  return row_runs(spans);
}

TEST(RowRuns, JoinNeighboursThatComeFromTheSameParts) {
  EXPECT_THAT(runs_of({{2, 3, 4, 9}, {3, 4}}),
              ElementsAre(RowRun{2, 1, {{0, 0}}}, RowRun{3, 2, {{0, 1}, {1, 0}}}, RowRun{9, 1, {{0, 3}}}));
}

TEST(RowRuns, HoldEveryRowOfEveryPartOnce) {
  std::mt19937_64 random{3};
  for (int round = 0; round < 300; ++round) {
    std::vector<Rows> parts(1 + random() % 4);
    std::multimap<std::uint32_t, std::uint32_t> expected, found;  // by row: the parts
    for (std::uint32_t p = 0; p < parts.size(); ++p) {
      std::set<std::uint32_t> rows;
      for (std::uint64_t i = random() % 12; i > 0; --i) rows.insert(static_cast<std::uint32_t>(random() % 16));
      parts[p].assign(rows.begin(), rows.end());
      for (const std::uint32_t row : rows) expected.emplace(row, p);
    }
    for (const RowRun& run : runs_of(parts)) {
      for (std::uint32_t i = 0; i < run.count; ++i) {
        for (const RowRun::From& from : run.from) {
          ASSERT_EQ(parts[from.part].at(from.slot + i), run.first + i);
          found.emplace(run.first + i, from.part);
        }
      }
    }
    ASSERT_EQ(found, expected);
  }
}

TEST(RowRuns, OnlyTakeAscendingRowsInRange) {
  EXPECT_TRUE(are_rows({}, 0));
  EXPECT_TRUE(are_rows(Rows{0, 3, 7}, 8));
  EXPECT_FALSE(are_rows(Rows{0, 3, 8}, 8));
  EXPECT_FALSE(are_rows(Rows{3, 3}, 8));
  EXPECT_FALSE(are_rows(Rows{4, 3}, 8));
}

}  // namespace
}  // namespace troupe
