#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/session/session.hpp"
#include "tools/bench/bare.hpp"

namespace troupe::bench {

/// A network to measure, with random samples: the time of a step does not depend on their contents.
struct Network {
  std::string_view name;      // for --case
  std::string_view settings;  // TOML: model and optimizer
  std::uint32_t batch;        // samples of a process, unless --batch is given
  Pace pace;
  OwnData (*draw)();
};

/// Throws Error{invalid} if there is no network of that name.
const Network& network_of(std::string_view name);
std::vector<std::string> names_of_networks();

}  // namespace troupe::bench
