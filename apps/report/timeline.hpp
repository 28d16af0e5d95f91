#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace troupe::report {

/// What one row of a trace did in one interval of time.
struct TimelineSpan {
  std::string name;   // as in the trace
  std::string phase;  // determines its colour
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

/// Reads a trace as Trace::write makes it: rows in the order of processes. Throws Error{invalid} if the file cannot be
/// read, and Error{corrupt} with the place if it is not such a trace.
std::vector<TimelineRow> read_timeline(const std::filesystem::path& file);

/// The middle one of the steps that all rows have completely; nothing: there are none.
std::optional<std::uint64_t> middle_step(const std::vector<TimelineRow>& rows);

/// An SVG, as a separate file, of all work while any rank worked on `step`; the work of other steps is paler. Throws
/// Error{invalid} if the rows have nothing of the step, naming the steps that they have.
std::string step_timeline(const std::vector<TimelineRow>& rows, std::uint64_t step);

}  // namespace troupe::report
