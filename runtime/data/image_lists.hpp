#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// One line of a map file.
struct MapEntry {
  std::string path;  // as written
  std::int32_t label = 0;
  friend bool operator==(const MapEntry&, const MapEntry&) = default;
};

/// The largest label that a map file may have.
inline constexpr std::int32_t kMostMapLabel = 1'000'000;

/// Reads a map file as CNTK's image reader takes them: a line for each image, its path, a tab, and its label as a
/// number from 0 on; empty lines mean nothing. `name` stands for the file in messages. Throws Error{invalid} with file,
/// line, cause and cure.
std::vector<MapEntry> parse_map(std::string_view text, const std::string& name);

}  // namespace troupe
