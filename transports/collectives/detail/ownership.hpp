#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/exchange/chunks.hpp"
#include "runtime/model/layout.hpp"

namespace troupe::collectives {

/// Elements [first, first + count) of a group, or of an all_reduce's data.
struct ElementRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

/// Which rank owns (adds up and updates) which part of a group, by bucket and by chunk. Threads: any.
class Ownership {
 public:
  /// Throws Error{invalid} if an element of a bucket has no owner or two owners, or if a rank owns two ranges of a
  /// bucket.
  Ownership(std::span<const Stripe> stripes, std::span<const Bucket> buckets, std::uint32_t ranks,
            std::uint64_t chunk_elements);
  std::uint32_t ranks() const noexcept { return ranks_; }
  std::size_t count_buckets() const noexcept { return first_chunk_.size() - 1; }
  /// All chunks, bucket by bucket.
  const std::vector<Chunk>& chunks() const noexcept { return chunks_; }
  std::span<const Chunk> chunks_of(std::uint32_t bucket) const noexcept {
    return {chunks_.data() + first_chunk_[bucket], first_chunk_[bucket + 1] - first_chunk_[bucket]};
  }
  /// The index of the bucket's first chunk in chunks().
  std::size_t first_chunk(std::uint32_t bucket) const noexcept { return first_chunk_[bucket]; }
  /// An empty part begins where its bucket or chunk begins.
  ElementRange part_of(std::uint32_t bucket, std::uint32_t rank) const noexcept {
    return parts_[bucket * ranks_ + rank];
  }
  ElementRange part_of(const Chunk& chunk, std::uint32_t rank) const noexcept;
  /// The most elements of a chunk that any rank owns; at least Layout::kAlignElements.
  std::uint64_t largest_part() const noexcept { return largest_; }

 private:
  std::uint32_t ranks_;
  std::vector<Chunk> chunks_;
  std::vector<std::size_t> first_chunk_;  // by bucket, and one more entry
  std::vector<ElementRange> parts_;       // by bucket and rank
  std::uint64_t largest_ = Layout::kAlignElements;
};

}  // namespace troupe::collectives
