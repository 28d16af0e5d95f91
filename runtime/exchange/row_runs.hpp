#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// Rows that follow each other and are updated from the same parts, in which they follow each other too.
struct RowRun {
  struct From {
    std::uint32_t part = 0;  // its number
    std::uint32_t slot = 0;  // where in the part the first row's numbers stand, in rows
    friend bool operator==(const From&, const From&) = default;
  };
  std::uint32_t first = 0;  // row
  std::uint32_t count = 0;
  std::vector<From> from;  // in the order of parts
  friend bool operator==(const RowRun&, const RowRun&) = default;
};

/// What an update from several row-sparse parts does, as few runs as possible in the order of rows. Part p has rows
/// parts[p], ascending, each once.
std::vector<RowRun> row_runs(std::span<const std::span<const std::uint32_t>> parts);

/// Whether `rows` ascend, each once, and are below `count`.
bool are_rows(std::span<const std::uint32_t> rows, std::uint64_t count) noexcept;

}  // namespace troupe
