#include "runtime/exchange/row_runs.hpp"

#include <algorithm>
#include <functional>
#include <limits>

namespace troupe {
namespace {

/// Whether `from`, of the row behind `run`, goes on where the run ends.
bool goes_on(const RowRun& run, std::uint32_t row, const std::vector<RowRun::From>& from) {
  if (run.first + run.count != row || run.from.size() != from.size()) return false;
  for (std::size_t i = 0; i < from.size(); ++i)
    if (run.from[i].part != from[i].part || run.from[i].slot + run.count != from[i].slot) return false;
  return true;
}

}  // namespace

std::vector<RowRun> row_runs(std::span<const std::span<const std::uint32_t>> parts) {
  std::vector<std::uint32_t> at(parts.size(), 0);
  std::vector<RowRun> runs;
  for (;;) {
    std::uint64_t row = std::numeric_limits<std::uint64_t>::max();
    for (std::size_t p = 0; p < parts.size(); ++p)
      if (at[p] < parts[p].size()) row = std::min<std::uint64_t>(row, parts[p][at[p]]);
    if (row == std::numeric_limits<std::uint64_t>::max()) return runs;
    std::vector<RowRun::From> from;
    for (std::uint32_t p = 0; p < parts.size(); ++p)
      if (at[p] < parts[p].size() && parts[p][at[p]] == row) from.push_back({p, at[p]++});
    const auto number = static_cast<std::uint32_t>(row);
    if (!runs.empty() && goes_on(runs.back(), number, from))
      ++runs.back().count;
    else
      runs.push_back({number, 1, std::move(from)});
  }
}

bool are_rows(std::span<const std::uint32_t> rows, std::uint64_t count) noexcept {
  return std::adjacent_find(rows.begin(), rows.end(), std::greater_equal<>{}) == rows.end() &&
         (rows.empty() || rows.back() < count);
}

}  // namespace troupe
