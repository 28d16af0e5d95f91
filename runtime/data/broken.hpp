#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

/// What happens if a sample's file is invalid or damaged: data.broken.
enum class Broken : std::uint8_t {
  fatal,  // the batch fails, and the message names the file
  skip,   // the row is black and has the label -1, which losses do not count; a note names the file
};
constexpr std::string_view name_of(Broken broken) noexcept { return broken == Broken::fatal ? "fatal" : "skip"; }

}  // namespace troupe
