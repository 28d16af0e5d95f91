#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "runtime/data/source.hpp"

namespace troupe {

SampleOrder::SampleOrder(std::uint64_t count_samples, std::uint64_t seed) : count_samples_(count_samples), seed_(seed) {
  TROUPE_CHECK(count_samples > 0 && count_samples <= std::numeric_limits<std::uint32_t>::max(), Code::invalid,
               "a sample order over ", count_samples, " samples: 1 to 2^32 - 1 are possible");
}

void SampleOrder::fill(std::uint64_t first, std::span<Sample> out) {
  while (!out.empty()) {
    const std::uint64_t epoch = first / count_samples_;
    const std::uint64_t within = first % count_samples_;
    const std::vector<std::uint32_t>& permutation = order_of(epoch);
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), count_samples_ - within));
    for (std::size_t i = 0; i < count; ++i) out[i] = {permutation[within + i], epoch};
    out = out.subspan(count);
    first += count;
  }
}

/// Source: Durstenfeld 1964 (Algorithm 235: Random permutation).
const std::vector<std::uint32_t>& SampleOrder::order_of(std::uint64_t epoch) {
  if (drawn_[0].epoch == epoch) return drawn_[0].permutation;
  std::swap(drawn_[0], drawn_[1]);
  Drawn& drawn = drawn_[0];
  if (drawn.epoch == epoch) return drawn.permutation;
  drawn.epoch = epoch;
  drawn.permutation.resize(count_samples_);
  std::iota(drawn.permutation.begin(), drawn.permutation.end(), 0U);
  const std::uint64_t key = sub_key(seed_, epoch);
  for (std::uint64_t last = count_samples_ - 1; last > 0; --last) {
    std::swap(drawn.permutation[last], drawn.permutation[random_below(key, last, last + 1)]);
  }
  return drawn.permutation;
}

}  // namespace troupe
