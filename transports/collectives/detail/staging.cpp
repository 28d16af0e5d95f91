#include "transports/collectives/detail/staging.hpp"

namespace troupe::collectives {
namespace {

constexpr std::uint64_t kAlignBytes = 64;

std::uint64_t aligned(std::uint64_t size_bytes) noexcept {
  return (size_bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
}

}  // namespace

Staging::Staging(const Ownership& ownership, std::uint32_t self, std::uint64_t packed_bytes)
    : ownership_(ownership), self_(self), packed_bytes_(packed_bytes) {
  const std::uint64_t others = ownership.ranks() - 1;
  const auto take = [this](std::uint64_t bytes) {
    const std::uint64_t first = size_bytes_;
    size_bytes_ += aligned(bytes);
    return first;
  };
  take(2 * count_channels() * (ownership.ranks() + 1) * sizeof(StepSums));  // from the beginning on
  reduced_ = take(others * ownership.largest_part() * sizeof(float));
  for (std::uint32_t b = 0; b < ownership.count_buckets(); ++b) {
    const std::uint64_t own = ownership.part_of(b, self).count;
    gradients_.push_back(take(others * aligned(own * sizeof(float))));
    if (packed_bytes == 0) continue;
    packed_.push_back(take(others * aligned(own * packed_bytes)));
    std::uint64_t count = 0;
    for (const Chunk& chunk : ownership.chunks_of(b)) count += chunk.count;
    leaving_.push_back(take(count * packed_bytes));
  }
}

Memory Staging::sums(std::size_t channel, std::uint64_t sequence, std::uint32_t rank) const noexcept {
  const std::uint64_t row = ownership_.ranks() + 1;
  return slice(memory_, ((2 * channel + sequence % 2) * row + rank) * sizeof(StepSums), sizeof(StepSums));
}

Memory Staging::total(std::size_t channel, std::uint64_t sequence) const noexcept {
  return sums(channel, sequence, ownership_.ranks());
}

Memory Staging::slot(const std::vector<std::uint64_t>& first, std::uint32_t bucket, std::uint32_t rank,
                     const Part& part, std::uint64_t element_bytes) const noexcept {
  const Part own = ownership_.part_of(bucket, self_);
  const std::uint64_t place = rank < self_ ? rank : rank - 1;
  const std::uint64_t base = first[bucket] + place * aligned(own.count * element_bytes);
  return slice(memory_, base + (part.first - own.first) * element_bytes, part.count * element_bytes);
}

Memory Staging::gradients(std::uint32_t bucket, std::uint32_t rank, const Part& part) const noexcept {
  return slot(gradients_, bucket, rank, part, sizeof(float));
}

Memory Staging::packed(std::uint32_t bucket, std::uint32_t rank, const Part& part) const noexcept {
  return slot(packed_, bucket, rank, part, packed_bytes_);
}

Memory Staging::reduced(std::uint32_t rank, std::uint64_t size_bytes) const noexcept {
  const std::uint64_t place = rank < self_ ? rank : rank - 1;
  return slice(memory_, reduced_ + place * ownership_.largest_part() * sizeof(float), size_bytes);
}

Memory Staging::leaving(std::uint32_t bucket, const Part& part) const noexcept {
  const std::uint64_t first = ownership_.chunks_of(bucket).front().first;
  return slice(memory_, leaving_[bucket] + (part.first - first) * packed_bytes_, part.count * packed_bytes_);
}

}  // namespace troupe::collectives
