#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

namespace troupe {

/// How often each staleness occurred. The histograms of shards can be added to get that of their group.
struct StalenessHistogram {
  static constexpr std::size_t kCounted = 64;
  std::array<std::uint64_t, kCounted> counts{};  // for staleness 0, 1, ...; the last: kCounted - 1 or more
  std::uint64_t updates = 0;
  std::uint64_t sum = 0;
  std::uint64_t largest = 0;

  void add(std::uint64_t staleness) noexcept {
    ++counts[std::min<std::uint64_t>(staleness, kCounted - 1)];
    ++updates;
    sum += staleness;
    largest = std::max(largest, staleness);
  }
  void add(const StalenessHistogram& other) noexcept {
    for (std::size_t i = 0; i < kCounted; ++i) counts[i] += other.counts[i];
    updates += other.updates;
    sum += other.sum;
    largest = std::max(largest, other.largest);
  }
  double mean() const noexcept { return updates == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(updates); }
  friend bool operator==(const StalenessHistogram&, const StalenessHistogram&) = default;
};

/// For people: the mean, the largest, and the fraction of each staleness.
std::string to_string(const StalenessHistogram& histogram);

}  // namespace troupe
