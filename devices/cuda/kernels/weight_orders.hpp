#pragma once

#include "devices/cuda/kernels/numbers.hpp"

// Weights of convolutions from the order of the layout, channels before taps, to the one that kernels read, taps before
// channels, and gradients to them the other way. They are small: all layers' in one kernel.
namespace troupe::cuda {

/// Filters of `outer.divisor` times `inner` elements: to[outer][inner] = from[inner][outer] in each.
struct WeightOrder {
  void* to;
  const void* from;
  std::uint32_t count;        // elements of all filters
  std::uint32_t outer;        // extents of a filter, as it is written
  Divisor inner;              // likewise
  Divisor filter;             // elements of a filter
  std::uint32_t first_block;  // of those that do it
  Stored to_type;
  Stored from_type;
  std::uint32_t reserved;
};

inline constexpr std::uint32_t kMostWeightOrders = 40;
inline constexpr std::uint32_t kWeightsOfBlock = 4 * kBlockThreads;

struct OrderWeightsArgs {
  const StreamState* stream;
  Factor factor;  // of what is written
  std::uint32_t count;
  std::uint32_t reserved;
  WeightOrder orders[kMostWeightOrders];
};
TROUPE_KERNEL_BODY void order_weights(const Block& block, const OrderWeightsArgs& args) {
  std::uint32_t n = 0;
  while (n + 1 < args.count && block.index() >= args.orders[n + 1].first_block) ++n;
  const WeightOrder& order = args.orders[n];
  void* const to = block.at(order.to);
  const void* const from = block.at(order.from);
  const float factor = value_of(block, args.factor);
  const std::uint32_t first = (block.index() - order.first_block) * kWeightsOfBlock;
  block.for_each_here(kWeightsOfBlock, [&](std::uint64_t k) {
    const std::uint32_t i = first + static_cast<std::uint32_t>(k);
    if (i >= order.count) return;
    std::uint32_t at = i;  // in its filter
    (void)divide(at, order.filter);
    const std::uint32_t before = i - at;
    const std::uint32_t outer = divide(at, order.inner);
    store(to, order.to_type, i, load(from, order.from_type, before + at * order.outer + outer) * factor);
  });
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const OrderWeightsArgs& args) {
  touched.reads(args.factor.at, sizeof(float));
  for (std::uint32_t n = 0; n < args.count; ++n) {
    const WeightOrder& order = args.orders[n];
    touched.reads(order.from, order.count * bytes_of(order.from_type));
    touched.writes(order.to, order.count * bytes_of(order.to_type));
  }
}
#endif

}  // namespace troupe::cuda
