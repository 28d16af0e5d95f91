#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// Bytes as text that a terminal shows and does not obey: letters of UTF-8, line ends and tabs stay, other bytes become
/// \xNN.
std::string printable(std::string_view bytes);

}  // namespace troupe
