#include "runtime/exchange/chunks.hpp"

#include <gtest/gtest.h>

#include "runtime/base/random.hpp"

namespace troupe {
namespace {

TEST(Chunks, CoverEveryBucketInOrderAndAreNoLargerThanAsked) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<Bucket> buckets;
    std::uint64_t first = 0;
    for (std::uint32_t index = 0; index < 1 + random_below(seed, 0, 5); ++index) {
      const std::uint64_t count = 1 + random_below(seed, 1 + index, 5000);
      buckets.push_back({GroupId{}, index, first, count});
      first += count;
    }
    const std::uint64_t most = 1 + random_below(seed, 9, 2000);
    const std::vector<Chunk> chunks = cut_into_chunks(buckets, most);
    std::size_t next = 0;
    for (const Bucket& bucket : buckets) {
      std::uint64_t end = bucket.first;
      for (std::uint32_t index = 0; end < bucket.first + bucket.count; ++index, ++next) {
        ASSERT_LT(next, chunks.size());
        EXPECT_EQ(chunks[next].bucket, bucket.index);
        EXPECT_EQ(chunks[next].index, index);
        EXPECT_EQ(chunks[next].first, end);
        EXPECT_LE(chunks[next].count, most);
        end += chunks[next].count;
      }
      EXPECT_EQ(end, bucket.first + bucket.count);
    }
    EXPECT_EQ(next, chunks.size());
  }
}

TEST(Chunks, OfALargeGroupAreFewAndWholeBlocks) {
  EXPECT_EQ(chunk_elements(1), 16384U);
  for (const std::uint64_t count : {1'000'000ULL, 25'000'000ULL, 7'000'000'001ULL}) {
    EXPECT_LE((count + chunk_elements(count) - 1) / chunk_elements(count), 512U) << count;
    EXPECT_EQ(chunk_elements(count) % 1024, 0U);
  }
}

}  // namespace
}  // namespace troupe
