#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/session/session.hpp"
#include "tools/bench/bare.hpp"

namespace troupe::bench {

/// A network that is measured, with samples drawn for it: what a step costs does not depend on what they show.
struct Network {
  std::string_view name;      // of --case
  std::string_view settings;  // TOML: model and optimizer
  std::uint32_t batch;        // samples of a process, unless --batch says otherwise
  Pace pace;
  OwnData (*draw)();
};

/// Throws Error{invalid} where there is none of that name.
const Network& network_of(std::string_view name);
std::vector<std::string> names_of_networks();

}  // namespace troupe::bench
