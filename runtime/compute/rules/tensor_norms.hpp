#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "runtime/compute/rules/gradient_check.hpp"
#include "runtime/compute/update_pass.hpp"

// The arithmetic of rules with tensor norms (RuleEntry::tensor_norms), which all devices repeat exactly: how far a
// tensor moves depends on the norms of its weights and of its update. The elements of a tensor may belong to several
// ranks: each rank computes the squares of its part (Stream::add_update_squares), these are added up, and then the
// update begins (trust_ratio).
namespace troupe {

/// Adds to `found` the sums of squares of one piece of a tensor, [count] each: of its weights, and of the direction in
/// which `rule` moves them. In lanes, like add_squares.
template <RuleKind kKind>
inline void add_piece_squares(TensorSquares& found, const RuleStep& rule, float scale, const float* sum, const float* p,
                              const float* s0, const float* s1, std::uint64_t count) noexcept {
  SquareLanes weights{}, update{};
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto weight = static_cast<double>(p[i]);
    const auto move =
        static_cast<double>(update_direction<kKind>(rule, scale, sum[i], p[i], s0 ? s0[i] : 0.0F, s1 ? s1[i] : 0.0F));
    weights[i % weights.size()] += weight * weight;
    update[i % update.size()] += move * move;
  }
  found.weights += static_cast<float>(fold(weights));
  found.update += static_cast<float>(fold(update));
}

/// Stream::add_update_squares; calls `measure(found, rule, first, count)` for each piece of a tensor.
template <class Measure>
void add_tensor_squares(const UpdateAddresses& at, const RuleStep& rule, Measure&& measure) {
  for_each_range(at, at.scaled, 0, at.count, [&](std::uint64_t first, std::uint64_t count, std::size_t tensor) {
    if (tensor == kNoRange) return;
    for_each_range(at, at.no_decay, first, count, [&](std::uint64_t begin, std::uint64_t some, std::size_t undecayed) {
      measure(at.squares[tensor], undecayed == kNoRange ? rule : without_decay(rule), begin, some);
    });
  });
}

/// As plain loops.
inline void add_tensor_squares(const UpdateAddresses& at, const RuleStep& rule, float scale, const float* sum) {
  const auto measure = [&](TensorSquares& found, const RuleStep& here, std::uint64_t first, std::uint64_t count) {
    const auto from = [&](const float* array) { return array ? array + first : array; };
    for_kind(here.kind, [&]<RuleKind kKind>() {
      add_piece_squares<kKind>(found, here, scale, sum + first, at.parameters + first, from(at.state[0]),
                               from(at.state[1]), count);
    });
  };
  add_tensor_squares(at, rule, measure);
}

}  // namespace troupe
