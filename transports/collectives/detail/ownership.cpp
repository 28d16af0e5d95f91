#include "transports/collectives/detail/ownership.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"
#include "runtime/exchange/exchange.hpp"

namespace troupe::collectives {

Ownership::Ownership(std::span<const Stripe> stripes, std::span<const Bucket> buckets, std::uint32_t ranks,
                     std::uint64_t chunk_elements)
    : ranks_(ranks), chunks_(cut_into_chunks(buckets, chunk_elements)), parts_(buckets.size() * ranks) {
  std::size_t chunk = 0;
  for (std::uint32_t b = 0; b < buckets.size(); ++b) {
    const Bucket& bucket = buckets[b];
    TROUPE_CHECK(bucket.index == b, Code::invalid, "bucket ", bucket.index, " stands in place ", b);
    first_chunk_.push_back(chunk);
    while (chunk < chunks_.size() && chunks_[chunk].bucket == b) ++chunk;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) parts_[b * ranks_ + rank].first = bucket.first;
    std::uint64_t owned = 0;
    for (const Stripe& stripe : stripes) {
      const Stripe common = common_part(stripe, bucket);
      if (common.count == 0) continue;
      TROUPE_CHECK(stripe.owner.value < ranks, Code::invalid, "a stripe of rank ", stripe.owner.value, " of ", ranks);
      ElementRange& part = parts_[b * ranks_ + stripe.owner.value];
      TROUPE_CHECK(part.count == 0, Code::invalid, "rank ", stripe.owner.value, " has two stripes in bucket ", b);
      part = {common.first, common.count};
      owned += common.count;
    }
    TROUPE_CHECK(owned == bucket.count, Code::invalid, "bucket ", b, " of ", bucket.count, " elements: ", owned,
                 " of them have an owner");
  }
  first_chunk_.push_back(chunk);
  for (const Chunk& one : chunks_)
    for (std::uint32_t rank = 0; rank < ranks; ++rank) largest_ = std::max(largest_, part_of(one, rank).count);
}

ElementRange Ownership::part_of(const Chunk& chunk, std::uint32_t rank) const noexcept {
  const ElementRange& whole = parts_[chunk.bucket * ranks_ + rank];
  const std::uint64_t first = std::max(whole.first, chunk.first);
  const std::uint64_t end = std::min(whole.first + whole.count, chunk.first + chunk.count);
  if (end <= first) return {chunk.first, 0};
  return {first, end - first};
}

}  // namespace troupe::collectives
