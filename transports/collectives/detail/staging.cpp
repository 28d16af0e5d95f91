#include "transports/collectives/detail/staging.hpp"

#include <algorithm>

namespace troupe::collectives {
namespace {

constexpr std::uint64_t kAlignBytes = 64;

std::uint64_t aligned(std::uint64_t size_bytes) noexcept {
  return (size_bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
}

}  // namespace

Staging::Staging(const Ownership& ownership, std::uint32_t self, const StagingNeeds& needs)
    : ownership_(ownership),
      self_(self),
      needs_(needs),
      element_bytes_(needs.packed_bytes != 0 ? needs.packed_bytes : sizeof(float)) {
  const std::uint64_t others = ownership.ranks() - 1;
  const auto take = [this](std::uint64_t bytes) {
    const std::uint64_t first = size_bytes_;
    size_bytes_ += aligned(bytes);
    return first;
  };
  take(2 * count_channels() * (ownership.ranks() + 1) * sizeof(StepSums));  // at the start of the memory
  reduced_ = take(others * ownership.largest_part() * sizeof(float));
  std::uint64_t elements = 0, largest = 0;
  for (std::uint32_t b = 0; b < ownership.count_buckets(); ++b) {
    const std::uint64_t own = ownership.part_of(b, self).count;
    largest = std::max(largest, own);
    contribution_.push_back(take(others * aligned(own * element_bytes_)));
    std::uint64_t count = 0;
    for (const Chunk& chunk : ownership.chunks_of(b)) {
      count += chunk.count;
      elements = std::max(elements, chunk.first + chunk.count);
    }
    if (needs.packed_bytes != 0 || needs.sends_staged) leaving_.push_back(take(count * element_bytes_));
  }
  if (needs.packed_bytes != 0) {
    summed_ = take(largest * sizeof(float));
    unpacked_ = take(largest * sizeof(float));
  }
  if (!needs.device_memory) return;
  results_ = take(elements * sizeof(float));
  if (needs.half) image_ = take(elements * troupe::size_bytes(DType::bf16));
  plain_ = take(ownership.ranks() * aligned(ownership.largest_part() * sizeof(float)));
}

Memory Staging::sums(std::size_t channel, std::uint64_t sequence, std::uint32_t rank) const noexcept {
  const std::uint64_t row = ownership_.ranks() + 1;
  return slice(memory_, ((2 * channel + sequence % 2) * row + rank) * sizeof(StepSums), sizeof(StepSums));
}

Memory Staging::total(std::size_t channel, std::uint64_t sequence) const noexcept {
  return sums(channel, sequence, ownership_.ranks());
}

Memory Staging::contribution(std::uint32_t bucket, std::uint32_t rank, const ElementRange& part) const noexcept {
  const ElementRange own = ownership_.part_of(bucket, self_);
  const std::uint64_t place = rank < self_ ? rank : rank - 1;
  const std::uint64_t base = contribution_[bucket] + place * aligned(own.count * element_bytes_);
  return slice(memory_, base + (part.first - own.first) * element_bytes_, part.count * element_bytes_);
}

Memory Staging::summed(std::uint64_t count) const noexcept { return slice(memory_, summed_, count * sizeof(float)); }

Memory Staging::unpacked(std::uint64_t count) const noexcept {
  return slice(memory_, unpacked_, count * sizeof(float));
}

Memory Staging::reduced(std::uint32_t rank, std::uint64_t size_bytes) const noexcept {
  const std::uint64_t place = rank < self_ ? rank : rank - 1;
  return slice(memory_, reduced_ + place * ownership_.largest_part() * sizeof(float), size_bytes);
}

Memory Staging::leaving(std::uint32_t bucket, const ElementRange& part) const noexcept {
  const std::uint64_t first = ownership_.chunks_of(bucket).front().first;
  return slice(memory_, leaving_[bucket] + (part.first - first) * element_bytes_, part.count * element_bytes_);
}

Memory Staging::results(const ElementRange& part) const noexcept {
  return slice(memory_, results_ + part.first * sizeof(float), part.count * sizeof(float));
}

Memory Staging::image(const ElementRange& part) const noexcept {
  return slice(memory_, image_ + part.first * troupe::size_bytes(DType::bf16),
               part.count * troupe::size_bytes(DType::bf16));
}

Memory Staging::plain(std::uint32_t rank, std::uint64_t size_bytes) const noexcept {
  return slice(memory_, plain_ + rank * aligned(ownership_.largest_part() * sizeof(float)), size_bytes);
}

}  // namespace troupe::collectives
