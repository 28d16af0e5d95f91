#include "tools/bench/group/spread.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <numeric>
#include <sstream>

#include <nlohmann/json.hpp>

namespace troupe::bench {

double Spread::at(double quantile) const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const auto rank = static_cast<std::size_t>(std::ceil(quantile * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

double Spread::mean() const {
  if (values_.empty()) return 0;
  return std::accumulate(values_.begin(), values_.end(), 0.0) / static_cast<double>(values_.size());
}

nlohmann::ordered_json Spread::json() const {
  return {{"median", rounded(at(0.5))}, {"p99", rounded(at(0.99))}, {"max", rounded(max())}};
}

double rounded(double value) {
  std::ostringstream out;
  out << std::setprecision(4) << value;
  return std::stod(out.str());
}

}  // namespace troupe::bench
