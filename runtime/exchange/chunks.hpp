#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/layout.hpp"

namespace troupe {

/// A range of a bucket that travels by itself, so that one chunk is added up and sent back while the next one is still
/// on its way.
struct Chunk {
  std::uint32_t bucket = 0;
  std::uint32_t index = 0;  // in its bucket
  std::uint64_t first = 0;  // element of the group
  std::uint64_t count = 0;
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

/// How many elements a chunk of a group of `count_elements` has at most: 64 KiB of f32, which 100 Mbit/s carry in 5 ms,
/// and more where that would make more than 512 chunks.
std::uint64_t chunk_elements(std::uint64_t count_elements) noexcept;

/// Cuts each of a group's `buckets`, given by index, into chunks of at most `most_elements`; a bucket's chunks follow
/// each other, and an empty bucket has an empty one.
std::vector<Chunk> cut_into_chunks(std::span<const Bucket> buckets, std::uint64_t most_elements);

}  // namespace troupe
