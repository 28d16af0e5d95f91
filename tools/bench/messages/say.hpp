#pragma once

#include <iostream>
#include <string_view>

namespace troupe::bench {

/// "rtbench: TEXT" on stderr; stdout is the results'.
inline void say(std::string_view text) { std::cerr << "rtbench: " << text << std::endl; }
inline void say_error(std::string_view text) { std::cerr << "rtbench: error: " << text << std::endl; }

}  // namespace troupe::bench
