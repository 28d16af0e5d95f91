#include "runtime/compute/rank_gather.hpp"

#include <algorithm>

namespace troupe {

MomentsPart moments_in(std::byte* part, std::uint64_t channels) noexcept {
  auto* const numbers = reinterpret_cast<float*>(part + sizeof(std::uint64_t));
  return {reinterpret_cast<std::uint64_t*>(part), numbers, numbers + channels};
}

Moments moments_of(std::span<std::byte* const> parts, std::uint64_t channels, std::uint64_t channel) noexcept {
  Moments all;
  for (std::byte* const part : parts) {
    const MomentsPart one = moments_in(part, channels);
    all.add({static_cast<double>(*one.count), one.means[channel], one.squares[channel]});
  }
  return all;
}

GradientSumsPart gradient_sums_in(std::byte* part, std::uint64_t channels) noexcept {
  auto* const numbers = reinterpret_cast<float*>(part);
  return {numbers, numbers + channels};
}

GradientSums gradient_sums_of(std::span<std::byte* const> parts, std::uint64_t channels,
                              std::uint64_t channel) noexcept {
  GradientSums all;
  for (std::byte* const part : parts) {
    const GradientSumsPart one = gradient_sums_in(part, channels);
    all.sum += one.sums[channel];
    all.product += one.products[channel];
  }
  return all;
}

std::uint64_t gathered_bytes(const Graph& graph) {
  constexpr std::uint64_t kAlign = 64;
  std::uint64_t most = 0;
  for (std::size_t l = 0; l < graph.layers().size(); ++l) {
    const auto* norm = std::get_if<BatchNorm>(&graph.layers()[l].operation);
    if (norm == nullptr || !norm->synchronized) continue;
    most = std::max(most, moments_bytes(graph.output_of(l).extents.back()));
  }
  return (most + kAlign - 1) / kAlign * kAlign;
}

}  // namespace troupe
