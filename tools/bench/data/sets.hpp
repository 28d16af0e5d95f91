#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/source.hpp"
#include "tools/bench/data/command.hpp"

namespace troupe::bench {

/// A source to measure, and the operations on its samples.
struct MeasuredSet {
  std::unique_ptr<Source> source;
  std::string name;
  std::vector<std::string> augment;
};

/// Images of random bytes: the time that they take does not depend on their contents.
struct RandomImages {
  std::uint32_t count = 0;
  std::uint32_t side = 0;  // pixels
  std::uint32_t channels = 0;
  std::uint32_t classes = 0;
};
std::unique_ptr<Source> random_images(const RandomImages& what, const std::vector<std::string>& augment);

/// Throws Error{invalid} for an unknown operation.
MeasuredSet make_measured_set(const DataCase& what);

}  // namespace troupe::bench
