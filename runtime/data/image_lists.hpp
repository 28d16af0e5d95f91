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

/// The largest label allowed in a map file.
inline constexpr std::int32_t kMostMapLabel = 1'000'000;

/// Reads a map file in the format of CNTK's image reader: a line for each image, with its path, a tab, and its label as
/// a number from 0 on; empty lines are ignored. `name` stands for the file in messages. Throws Error{invalid} with
/// file, line, cause and cure.
std::vector<MapEntry> parse_map(std::string_view text, const std::string& name);

}  // namespace troupe
