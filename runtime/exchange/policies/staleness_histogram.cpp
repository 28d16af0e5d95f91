#include "runtime/exchange/policies/staleness_histogram.hpp"

#include <fmt/format.h>

namespace troupe {

std::string to_string(const StalenessHistogram& histogram) {
  std::string out = fmt::format("mean {:.2f}, largest {}", histogram.mean(), histogram.largest);
  for (std::size_t s = 0; s < StalenessHistogram::kCounted; ++s) {
    if (histogram.counts[s] == 0) continue;
    const double share = static_cast<double>(histogram.counts[s]) / static_cast<double>(histogram.updates);
    out += fmt::format("{} {}{}: {:.1f} %", out.find(';') == std::string::npos ? ";" : ",", s,
                       s + 1 == StalenessHistogram::kCounted ? " or more" : "", 100 * share);
  }
  return out;
}

}  // namespace troupe
