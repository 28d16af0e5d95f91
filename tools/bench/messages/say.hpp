#pragma once

#include <chrono>
#include <iostream>
#include <string_view>

namespace troupe::bench {

/// Of long tests: how often they say how far they are.
inline constexpr std::chrono::seconds kSayEvery{5};
/// If nothing has moved for so long, it never will.
inline constexpr std::chrono::seconds kStall{30};

/// "rtbench: TEXT" on stderr; stdout is the results'.
inline void say(std::string_view text) { std::cerr << "rtbench: " << text << std::endl; }
inline void say_error(std::string_view text) { std::cerr << "rtbench: error: " << text << std::endl; }

}  // namespace troupe::bench
