#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace troupe::crew {

/// The values of many rounds.
class Spread {
 public:
  Spread() = default;
  explicit Spread(std::vector<double> values) : values_(std::move(values)) {}
  void add(double value) { values_.push_back(value); }
  std::size_t count() const noexcept { return values_.size(); }
  /// The smallest value that is not exceeded by the fraction `quantile` of all values; 0 if there are none.
  double at(double quantile) const;
  /// For an even number of values the mean of the middle two; 0 if there are none.
  double median() const;
  double mean() const;
  double max() const { return at(1); }
  /// {"median", "p99", "max"}, with four digits.
  nlohmann::ordered_json json() const;

 private:
  std::vector<double> values_;
};

/// With four digits; whole numbers are not changed.
nlohmann::ordered_json rounded(double value);
/// As text; whole numbers are rounded to `digits` digits, too.
std::string digits_of(double value, int digits = 4);

/// Rows of cells; the first column is left-aligned. Columns are `first` and `others` characters wide.
std::string table_of(const std::vector<std::vector<std::string>>& rows, int first, int others);

}  // namespace troupe::crew
