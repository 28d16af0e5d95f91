#include "tools/crew/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <numeric>

#include <nlohmann/json.hpp>

#include "runtime/base/error.hpp"
#include "runtime/base/text_stream.hpp"

namespace troupe::crew {

double Spread::at(double quantile) const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const auto rank = static_cast<std::size_t>(std::ceil(quantile * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

double Spread::median() const {
  const double below = at(0.5);
  return values_.size() % 2 == 1 ? below : (below + at(0.5 + 0.5 / static_cast<double>(values_.size()))) / 2;
}

double Spread::mean() const {
  if (values_.empty()) return 0;
  return std::accumulate(values_.begin(), values_.end(), 0.0) / static_cast<double>(values_.size());
}

nlohmann::ordered_json Spread::json() const {
  return {{"median", rounded(median())}, {"p99", rounded(at(0.99))}, {"max", rounded(max())}};
}

nlohmann::ordered_json rounded(double value) {
  constexpr double kLargestCount = 9e15;  // up to here a double is exact for every integer
  if (value == std::floor(value) && std::abs(value) < kLargestCount) return static_cast<std::int64_t>(value);
  return std::stod(digits_of(value));
}

std::string digits_of(double value, int digits) {
  TextStream out;
  out << std::setprecision(digits) << value;
  return out.str();
}

std::string table_of(const std::vector<std::vector<std::string>>& rows, int first, int others) {
  TextStream out;
  for (const auto& row : rows) {
    out << std::left << std::setw(first) << row.front() << std::right;
    for (std::size_t i = 1; i < row.size(); ++i) out << std::setw(others) << row[i];
    out << '\n';
  }
  return out.str();
}

}  // namespace troupe::crew
