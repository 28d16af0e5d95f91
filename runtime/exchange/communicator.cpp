#include "runtime/exchange/communicator.hpp"

#include <algorithm>

namespace troupe {

const StripeMemory& BucketWork::only_part() const {
  TROUPE_CHECK(mine.size() == 1, Code::invalid, mine.size(), " parts of a bucket, but only the own one is in reach");
  return mine.front();
}

std::vector<OwnedPart> equal_parts(const Memory& data, std::uint32_t ranks) {
  constexpr std::uint64_t kBlock = 64;
  const std::uint64_t each = (data.size_bytes + kBlock * ranks - 1) / (kBlock * ranks) * kBlock;
  std::vector<OwnedPart> parts;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const std::uint64_t first = std::min(r * each, data.size_bytes);
    parts.push_back({Rank{r}, slice(data, first, std::min(each, data.size_bytes - first))});
  }
  return parts;
}

void Communicator::all_reduce(Stream& stream, Memory data) {
  const std::vector<OwnedPart> parts = equal_parts(data, ranks());
  reduce_scatter(stream, parts);
  all_gather(stream, parts);
}

void Communicator::broadcast(Stream& stream, Memory data, Rank root) {
  all_gather(stream, std::vector<OwnedPart>{{root, data}});
}

}  // namespace troupe
