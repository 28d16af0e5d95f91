#pragma once

#include <string_view>

namespace troupe::rtrun {

/// Prints "PROGRAM: TEXT" on stderr, printable(), with the same prefix before each line of the text, in one write.
void say(std::string_view text, std::string_view program = "rtrun");
/// Prints "PROGRAM: error: TEXT" on stderr, in colour on a terminal unless NO_COLOR is set.
void say_error(std::string_view text, std::string_view program = "rtrun");

}  // namespace troupe::rtrun
