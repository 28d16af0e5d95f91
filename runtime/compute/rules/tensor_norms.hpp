#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "runtime/compute/rules/square_sums.hpp"
#include "runtime/compute/update_pass.hpp"

// The arithmetic of rules with tensor norms (RuleEntry::tensor_norms), which all devices repeat exactly: how far a
// tensor moves depends on the norms of its weights and of its update. The elements of a tensor may belong to several
// ranks: each rank computes the squares of its part (Stream::add_update_squares), these are added up, and then the
// update begins (trust_ratio).
namespace troupe {

inline constexpr std::size_t kTensorStrands = 128;

/// Adds the squares of one piece to the lanes, [count] each: of the weights, and of the direction in which `rule` moves
/// them.
template <RuleKind kKind>
inline void add_piece_squares(const RuleStep& rule, float scale, const float* sum, const float* p, const float* s0,
                              const float* s1, std::uint64_t count, double* weights, double* update) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto weight = static_cast<double>(p[i]);
    const auto move =
        static_cast<double>(update_direction<kKind>(rule, scale, sum[i], p[i], s0 ? s0[i] : 0.0F, s1 ? s1[i] : 0.0F));
    weights[i % kSquareLanes] += weight * weight;
    update[i % kSquareLanes] += move * move;
  }
}

/// Stream::add_update_squares; `measure(rule, first, count, weights, update)` adds the squares of a piece of a tensor
/// to the lanes.
template <class Measure>
void add_tensor_squares(const UpdateAddresses& at, const RuleStep& rule, Measure&& measure) {
  for_each_range(at, at.scaled, 0, at.count, [&](std::uint64_t first, std::uint64_t count, std::size_t tensor) {
    if (tensor == kNoRange) return;
    SquareStrands<kTensorStrands> weights(count), update(count);
    for_each_range(at, at.no_decay, first, count, [&](std::uint64_t begin, std::uint64_t some, std::size_t undecayed) {
      const RuleStep here = undecayed == kNoRange ? rule : without_decay(rule);
      for_each_square_piece(some, [&](std::uint64_t from, std::uint64_t elements, std::uint64_t piece) {
        SquareLanes of_weights{}, of_update{};
        measure(here, begin + from, elements, of_weights.data(), of_update.data());
        weights.add(piece, of_weights);
        update.add(piece, of_update);
      });
    });
    at.squares[tensor].weights += static_cast<float>(weights.sum());
    at.squares[tensor].update += static_cast<float>(update.sum());
  });
}

/// As plain loops.
inline void add_tensor_squares(const UpdateAddresses& at, const RuleStep& rule, float scale, const float* sum) {
  add_tensor_squares(
      at, rule, [&](const RuleStep& here, std::uint64_t first, std::uint64_t count, double* weights, double* update) {
        const auto from = [&](const float* array) { return array ? array + first : array; };
        for_kind(here.kind, [&]<RuleKind kKind>() {
          add_piece_squares<kKind>(here, scale, sum + first, at.parameters + first, from(at.state[0]),
                                   from(at.state[1]), count, weights, update);
        });
      });
}

}  // namespace troupe
