#include "runtime/exchange/stripes.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/compute/stream.hpp"

namespace troupe {

std::vector<double> bandwidth_shares(std::span<const double> bandwidth) {
  TROUPE_CHECK(!bandwidth.empty(), Code::invalid, "shares by bandwidth: there are no owners to give them to");
  for (const double b : bandwidth)
    TROUPE_CHECK(std::isfinite(b) && b > 0, Code::invalid, "shares by bandwidth: an owner has ", b,
                 ", which is not above 0");
  const auto n = static_cast<double>(bandwidth.size());
  std::vector<double> shares(bandwidth.begin(), bandwidth.end());
  if (bandwidth.size() > 2) {
    const double sum = std::accumulate(bandwidth.begin(), bandwidth.end(), 0.0);
    // All owners finish at the same time, unless the slowest needs longer for its parts of the others' stripes alone.
    const double time = std::max(2 * (n - 1) / sum, 1 / *std::min_element(bandwidth.begin(), bandwidth.end()));
    for (double& share : shares) share = std::max(0.0, (time * share - 1) / (n - 2));
  }
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= all;
  return shares;
}

std::vector<Stripe> shared_stripes(GroupId group, std::uint64_t count_elements, std::span<const double> shares) {
  TROUPE_CHECK(!shares.empty(), Code::invalid, "stripes of group ", group.value, ": there are no shares");
  constexpr std::uint64_t kBlock = UpdateJournal::kBlockElements;
  const std::uint64_t blocks = (count_elements + kBlock - 1) / kBlock;
  std::vector<Stripe> stripes;
  stripes.reserve(shares.size());
  double before = 0;
  std::uint64_t first_block = 0;
  for (std::uint32_t rank = 0; rank < shares.size(); ++rank) {
    TROUPE_CHECK(shares[rank] >= 0, Code::invalid, "stripes of group ", group.value, ": rank ", rank,
                 " has a share of ", shares[rank]);
    before += shares[rank];
    // Ends are rounded, not sizes, so that errors do not accumulate.
    const bool last = rank + 1 == shares.size();
    const auto rounded = static_cast<std::uint64_t>(std::llround(before * static_cast<double>(blocks)));
    const std::uint64_t end = last ? blocks : std::clamp(rounded, first_block, blocks);
    const std::uint64_t first = std::min(first_block * kBlock, count_elements);
    stripes.push_back({group, Rank{rank}, first, std::min(end * kBlock, count_elements) - first});
    first_block = end;
  }
  return stripes;
}

}  // namespace troupe
