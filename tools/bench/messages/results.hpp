#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/bench/messages/end.hpp"

namespace troupe::bench {

/// What one implementation reached at one size.
struct Result {
  std::string impl;
  std::uint64_t bytes = 0;
  std::map<std::string, std::vector<double>> rounds;  // by figure, one value a round
};

/// One JSON line; figures to four digits, but for whole numbers.
std::string json_line(const EndCase& common, const Result& result);

/// The medians of the rounds, a table for each figure: sizes down, implementations across, behind each its ratio to
/// `raw` of the same size where that was measured.
std::string table_of(const std::vector<Result>& results);

}  // namespace troupe::bench
