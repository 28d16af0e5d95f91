#include "runtime/exchange/chunks.hpp"

#include <algorithm>

namespace troupe {

std::uint64_t chunk_elements(std::uint64_t count_elements) noexcept {
  constexpr std::uint64_t kSmallest = 16 << 10;
  constexpr std::uint64_t kMostChunks = 512;
  constexpr std::uint64_t kBlock = 1024;  // stripes are cut into these blocks
  const std::uint64_t few_chunks = (count_elements + kMostChunks - 1) / kMostChunks;
  return (std::max(kSmallest, few_chunks) + kBlock - 1) / kBlock * kBlock;
}

std::vector<Chunk> cut_into_chunks(std::span<const Bucket> buckets, std::uint64_t most_elements) {
  std::vector<Chunk> chunks;
  for (const Bucket& bucket : buckets) {
    std::uint32_t index = 0;
    std::uint64_t done = 0;
    do {
      const std::uint64_t count = std::min(most_elements, bucket.count - done);
      chunks.push_back({bucket.index, index++, bucket.first + done, count});
      done += count;
    } while (done < bucket.count);
  }
  return chunks;
}

}  // namespace troupe
