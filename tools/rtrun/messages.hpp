#pragma once

#include <string_view>

namespace troupe::rtrun {

/// "rtrun: TEXT" on stderr; the same before each line of several, written at once.
void say(std::string_view text);
/// "rtrun: error: TEXT" on stderr, in colour on a terminal unless NO_COLOR is set.
void say_error(std::string_view text);

}  // namespace troupe::rtrun
