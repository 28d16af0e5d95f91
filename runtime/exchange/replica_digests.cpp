#include "runtime/exchange/replica_digests.hpp"

#include <utility>

#include <fmt/format.h>

#include "runtime/base/error.hpp"

namespace troupe {

ReplicaDigests::ReplicaDigests(std::uint32_t ranks, std::vector<std::string> names)
    : ranks_(ranks), names_(std::move(names)) {
  TROUPE_CHECK(ranks > 0, Code::invalid, "digests of no ranks");
}

std::optional<std::string> ReplicaDigests::add(const RankDigest& digest) {
  TROUPE_CHECK(digest.rank < ranks_ && digest.tensors.size() == names_.size(), Code::invalid, "rank ", digest.rank,
               " tells digests of ", digest.tensors.size(), " tensors in a job of ", ranks_, " ranks and ",
               names_.size(), " tensors");
  OfStep& ranks = waiting_[digest.step];
  TROUPE_CHECK(ranks.emplace(digest.rank, digest.tensors).second, Code::invalid, "rank ", digest.rank,
               " tells its digest of step ", digest.step, " twice");
  if (ranks.size() < ranks_) return {};
  const OfStep complete = std::move(waiting_.extract(digest.step).mapped());
  auto wrong = difference(digest.step, complete);
  if (!wrong) ++equal_;
  return wrong;
}

std::optional<std::string> ReplicaDigests::difference(std::uint64_t step, const OfStep& ranks) const {
  const std::vector<std::uint64_t>& first = ranks.at(0);
  for (std::size_t t = 0; t < names_.size(); ++t) {
    for (const auto& [rank, tensors] : ranks) {
      if (tensors[t] == first[t]) continue;
      return fmt::format(
          "after step {} the weights of rank {} are not those of rank 0, first in {} (xxh3 {:016x}, of rank 0 {:016x})",
          step, rank, names_[t], tensors[t], first[t]);
    }
  }
  return {};
}

}  // namespace troupe
