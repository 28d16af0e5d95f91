#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/source.hpp"
#include "tools/bench/data/command.hpp"

namespace troupe::bench {

/// A source to be measured, and what is done to its samples.
struct MeasuredSet {
  std::unique_ptr<Source> source;
  std::string name;
  std::vector<std::string> augment;
};

/// Throws Error{invalid} for an operation that is none.
MeasuredSet make_measured_set(const DataCase& what);

}  // namespace troupe::bench
