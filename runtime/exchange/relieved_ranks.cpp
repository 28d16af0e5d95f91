#include "runtime/exchange/relieved_ranks.hpp"

#include <algorithm>
#include <numeric>

namespace troupe {

std::vector<Rank> relieved_of(std::span<const std::uint32_t> rows) {
  const std::uint64_t all = std::accumulate(rows.begin(), rows.end(), std::uint64_t{0});
  std::vector<Rank> relieved;
  for (std::size_t r = 0; r < rows.size(); ++r)
    if (2 * rows.size() * rows[r] < all) relieved.push_back({static_cast<std::uint32_t>(r)});
  return relieved;
}

Stripe piece_of(const Stripe& part, Rank rank, std::size_t ranks, std::span<const Rank> relieved) noexcept {
  constexpr std::uint64_t kLine = 16;  // f32
  Stripe piece = part;
  if (!std::binary_search(relieved.begin(), relieved.end(), part.owner)) {
    if (part.owner != rank) piece.count = 0;
    return piece;
  }
  const auto at = std::lower_bound(relieved.begin(), relieved.end(), rank);
  if (at != relieved.end() && *at == rank) {
    piece.count = 0;
    return piece;
  }
  const std::uint64_t helpers = ranks - relieved.size();
  const std::uint64_t helper = rank.value - static_cast<std::uint64_t>(at - relieved.begin());
  const std::uint64_t each = (part.count + helpers * kLine - 1) / (helpers * kLine) * kLine;
  const std::uint64_t first = std::min(helper * each, part.count);
  piece.first = part.first + first;
  piece.count = std::min(each, part.count - first);
  return piece;
}

}  // namespace troupe
