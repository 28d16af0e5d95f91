#pragma once

#include <cstddef>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace troupe::bench {

/// Values of many rounds.
class Spread {
 public:
  void add(double value) { values_.push_back(value); }
  std::size_t count() const noexcept { return values_.size(); }
  /// The smallest value that the share `quantile` of all does not exceed; 0 of none.
  double at(double quantile) const;
  double mean() const;
  double max() const { return at(1); }
  /// {"median", "p99", "max"}, to four digits.
  nlohmann::ordered_json json() const;

 private:
  std::vector<double> values_;
};

/// To four digits.
double rounded(double value);

}  // namespace troupe::bench
