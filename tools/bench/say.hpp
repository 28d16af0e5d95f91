#pragma once

#include <chrono>
#include <iostream>
#include <string_view>

#include "tools/crew/line.hpp"

namespace troupe::bench {

using namespace crew;  // every measurement uses its processes and actors

/// How often long tests print their progress.
inline constexpr std::chrono::seconds kSayEvery{5};
/// If nothing has changed for this long, the test has failed.
inline constexpr std::chrono::seconds kStall{30};

/// Prints "rtbench: TEXT" on stderr; stdout is for results.
inline void say(std::string_view text) { std::cerr << "rtbench: " << text << std::endl; }
inline void say_error(std::string_view text) { std::cerr << "rtbench: error: " << text << std::endl; }

}  // namespace troupe::bench
