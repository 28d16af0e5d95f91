#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace troupe::report {

/// What one row of a trace did in one stretch of time.
struct TimelineSpan {
  std::string name;   // as in the trace
  std::string phase;  // by which it is coloured
  std::optional<std::uint64_t> step;
  double begin_us = 0;
  double end_us = 0;
};

/// One stream, lane or actor of one rank.
struct TimelineRow {
  std::string process;  // "rank 0 on node"
  std::string name;
  std::vector<TimelineSpan> spans;
};

/// Reads a trace as Trace::write makes them: rows in the order of processes. Throws Error{invalid} for a file that
/// cannot be read and Error{corrupt} for one that is no such trace, with the place.
std::vector<TimelineRow> read_timeline(const std::filesystem::path& file);

/// The step in the middle of those that the rows have all of; nothing: they have none.
std::optional<std::uint64_t> middle_step(const std::vector<TimelineRow>& rows);

/// An SVG, as a file of its own, of everything that went on while any rank worked at `step`; other steps' work is
/// paler. Throws Error{invalid} when the rows have nothing of the step, naming those they have.
std::string step_timeline(const std::vector<TimelineRow>& rows, std::uint64_t step);

}  // namespace troupe::report
