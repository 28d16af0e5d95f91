#include "tools/bench/messages/results.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

namespace troupe::bench {
namespace {

constexpr int kColumn = 20;
constexpr double kLargestCount = 9e15;  // doubles hold every one up to it

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// To four digits; counts as they are.
nlohmann::ordered_json rounded(double value) {
  if (value == std::floor(value) && std::abs(value) < kLargestCount) return static_cast<std::int64_t>(value);
  std::ostringstream out;
  out << std::setprecision(4) << value;
  return std::stod(out.str());
}

/// Absent: not measured.
const Result* find(const std::vector<Result>& results, const std::string& impl, std::uint64_t bytes,
                   const std::string& figure) {
  const auto found = std::find_if(results.begin(), results.end(), [&](const Result& result) {
    return result.impl == impl && result.bytes == bytes && result.rounds.contains(figure);
  });
  return found == results.end() ? nullptr : &*found;
}

std::string cell(const std::vector<Result>& results, const std::string& impl, std::uint64_t bytes,
                 const std::string& figure) {
  const Result* const result = find(results, impl, bytes, figure);
  if (result == nullptr) return "-";
  const double value = median(result->rounds.at(figure));
  std::ostringstream out;
  out << std::setprecision(4) << value;
  const Result* const raw = find(results, "raw", bytes, figure);
  if (raw != nullptr && raw != result) {
    const double ratio = value / median(raw->rounds.at(figure));
    out << " (" << std::setprecision(3) << ratio << "x)";
  }
  return out.str();
}

}  // namespace

std::string json_line(const EndCase& common, const Result& result) {
  nlohmann::ordered_json line{{"bench", "messages"}};
  if (common.what != "latency") line["what"] = common.what;
  line["impl"] = result.impl;
  line["transport"] = common.transport;
  line["bytes"] = result.bytes;
  if (common.floods()) {
    line["memory_mb"] = common.memory_mb;
    line["reads"] = common.reads;
    line["seconds"] = rounded(common.span_ms / 1e3);
  }
  for (const auto& [figure, values] : result.rounds) {
    auto& list = line[figure] = nlohmann::json::array();
    for (const double value : values) list.push_back(rounded(value));
  }
  return line.dump();
}

std::string table_of(const std::vector<Result>& results) {
  std::vector<std::string> impls;
  std::set<std::uint64_t> sizes;
  std::set<std::string> figures;
  for (const Result& result : results) {
    if (std::find(impls.begin(), impls.end(), result.impl) == impls.end()) impls.push_back(result.impl);
    sizes.insert(result.bytes);
    for (const auto& [figure, values] : result.rounds) figures.insert(figure);
  }
  std::ostringstream out;
  for (const std::string& figure : figures) {
    out << std::left << std::setw(10) << figure;
    for (const std::string& impl : impls) out << std::right << std::setw(kColumn) << impl;
    out << '\n';
    for (const std::uint64_t bytes : sizes) {
      out << std::left << std::setw(10) << bytes;
      for (const std::string& impl : impls)
        out << std::right << std::setw(kColumn) << cell(results, impl, bytes, figure);
      out << '\n';
    }
  }
  return out.str();
}

}  // namespace troupe::bench
