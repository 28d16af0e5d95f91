#include <algorithm>
#include <limits>
#include <numeric>

#include "runtime/data/random.hpp"
#include "runtime/data/source.hpp"
#include "runtime/error.hpp"

namespace troupe {

SampleOrder::SampleOrder(std::uint64_t count_samples, std::uint64_t seed) : count_samples_(count_samples), seed_(seed) {
  TROUPE_CHECK(count_samples > 0 && count_samples <= std::numeric_limits<std::uint32_t>::max(), Code::invalid,
               "a sample order over ", count_samples, " samples: 1 to 2^32 - 1 are possible");
}

void SampleOrder::fill(std::uint64_t first, std::span<std::uint64_t> out) {
  while (!out.empty()) {
    const std::uint64_t epoch = first / count_samples_;
    const std::uint64_t within = first % count_samples_;
    if (epoch != drawn_epoch_) draw(epoch);
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), count_samples_ - within));
    std::copy_n(permutation_.begin() + static_cast<std::ptrdiff_t>(within), count, out.begin());
    out = out.subspan(count);
    first += count;
  }
}

/// Source: Durstenfeld 1964 (Algorithm 235: Random permutation).
void SampleOrder::draw(std::uint64_t epoch) {
  permutation_.resize(count_samples_);
  std::iota(permutation_.begin(), permutation_.end(), 0U);
  const std::uint64_t key = sub_key(seed_, epoch);
  for (std::uint64_t last = count_samples_ - 1; last > 0; --last) {
    std::swap(permutation_[last], permutation_[random_below(key, last, last + 1)]);
  }
  drawn_epoch_ = epoch;
}

}  // namespace troupe
