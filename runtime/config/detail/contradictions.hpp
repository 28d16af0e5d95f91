#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/detail/schema.hpp"

namespace troupe::detail {

/// A value as it was written.
struct Given {
  TomlValue value;
  std::string origin;  // app.toml:7:9, or --set data.batch
  Place place;         // line 0: not in a file
};
using GivenKeys = std::map<std::string, Given, std::less<>>;

/// A contradiction between a key that was given and the others.
struct Contradiction {
  std::string_view key;
  std::string text;
};
/// All contradictions between keys whose values are valid by themselves. `settings` contain the given values.
std::vector<Contradiction> contradictions_of(const Settings& settings, const GivenKeys& given);

}  // namespace troupe::detail
