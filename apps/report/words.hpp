#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::report {

/// Escapes text for use between tags or in a quoted attribute: it contains no markup, and control characters are
/// replaced.
std::string escaped(std::string_view text);
/// 12,345
std::string grouped(std::uint64_t number);
/// 1 h 02 min, 2 min 03 s, 7.4 s, 35 ms
std::string span_text(double seconds);
/// 2026-01-31 09:05:00 UTC
std::string moment_text(std::chrono::system_clock::time_point moment);

}  // namespace troupe::report
