#pragma once

#include <chrono>
#include <string>

namespace troupe::report {

/// 1 h 02 min, 2 min 03 s, 7.4 s, 35 ms
std::string span_text(double seconds);
/// 2026-01-31 09:05:00 UTC
std::string moment_text(std::chrono::system_clock::time_point moment);

}  // namespace troupe::report
