#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/detail/schema.hpp"

namespace troupe::detail {

/// A value as somebody gave it.
struct Given {
  TomlValue value;
  std::string origin;  // app.toml:7:9, --set data.batch
  Place place;         // line 0: in no file
};
using GivenKeys = std::map<std::string, Given, std::less<>>;

/// What is wrong with a key that was given, beside the others.
struct Contradiction {
  std::string_view key;
  std::string text;
};
/// Everything that contradicts something else, where each value by itself may be taken. `settings` hold what is given.
std::vector<Contradiction> contradictions_of(const Settings& settings, const GivenKeys& given);

}  // namespace troupe::detail
