#pragma once

#include <chrono>
#include <iostream>
#include <string_view>

#include "tools/crew/line.hpp"

namespace troupe::bench {

using namespace crew;  // the processes and actors that are measured are words of every measurement

/// Of long tests: how often they say how far they are.
inline constexpr std::chrono::seconds kSayEvery{5};
/// If nothing has moved for so long, it never will.
inline constexpr std::chrono::seconds kStall{30};

/// "rtbench: TEXT" on stderr; stdout is the results'.
inline void say(std::string_view text) { std::cerr << "rtbench: " << text << std::endl; }
inline void say_error(std::string_view text) { std::cerr << "rtbench: error: " << text << std::endl; }

}  // namespace troupe::bench
