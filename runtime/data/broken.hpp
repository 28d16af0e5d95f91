#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

/// What happens where a sample's file is not what it should be, or is damaged: data.broken.
enum class Broken : std::uint8_t {
  fatal,  // the batch fails, and the message names the file
  skip,   // its row is black and has the label -1, which no loss counts; a note names the file
};
constexpr std::string_view name_of(Broken broken) noexcept { return broken == Broken::fatal ? "fatal" : "skip"; }

}  // namespace troupe
