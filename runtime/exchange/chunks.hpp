#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/layout.hpp"

namespace troupe {

/// A range of a bucket that is sent by itself, so that one chunk is added up and sent back while the next one is still
/// being received.
struct Chunk {
  std::uint32_t bucket = 0;
  std::uint32_t index = 0;  // index within its bucket
  std::uint64_t first = 0;  // first element, counted in the group
  std::uint64_t count = 0;
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

/// The largest number of elements in a chunk of a group of `count_elements`: 64 KiB of f32, which take 5 ms at 100
/// Mbit/s, or more if there would be more than 512 chunks.
std::uint64_t chunk_elements(std::uint64_t count_elements) noexcept;

/// Cuts each of a group's `buckets`, given by index, into chunks of at most `most_elements`. The chunks of a bucket are
/// consecutive; an empty bucket has one empty chunk.
std::vector<Chunk> cut_into_chunks(std::span<const Bucket> buckets, std::uint64_t most_elements);

}  // namespace troupe
