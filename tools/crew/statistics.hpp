#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace troupe::crew {

/// Values of many rounds.
class Spread {
 public:
  Spread() = default;
  explicit Spread(std::vector<double> values) : values_(std::move(values)) {}
  void add(double value) { values_.push_back(value); }
  std::size_t count() const noexcept { return values_.size(); }
  /// The smallest value that the share `quantile` of all does not exceed; 0 of none.
  double at(double quantile) const;
  /// Of an even number of values the mean of the two in the middle; 0 of none.
  double median() const;
  double mean() const;
  double max() const { return at(1); }
  /// {"median", "p99", "max"}, to four digits.
  nlohmann::ordered_json json() const;

 private:
  std::vector<double> values_;
};

/// To four digits; whole numbers as they are.
nlohmann::ordered_json rounded(double value);
/// As text, whole numbers too to `digits` of them.
std::string digits_of(double value, int digits = 4);

/// Rows of cells, the first one left-aligned, `first` and `others` columns wide.
std::string table_of(const std::vector<std::vector<std::string>>& rows, int first, int others);

}  // namespace troupe::crew
