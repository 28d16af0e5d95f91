#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "runtime/compute/stream.hpp"

// The arithmetic of Stream::reduce with a check, which all devices repeat exactly.
namespace troupe {

/// Squares are added up in lanes: element i in lane i mod 16, then the lanes from first to last, so that vectors of any
/// width give the same bits. The square of an f32 is exact in f64.
using SquareLanes = std::array<double, 16>;

inline void add_squares(SquareLanes& lanes, const float* values, std::uint64_t count) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(values[i]);
    lanes[i % lanes.size()] += value * value;
  }
}

inline double fold(const SquareLanes& lanes) noexcept {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

/// The rank that made the first element of `sum` non-finite: the first other rank whose part is not finite there, else
/// the rank whose part `sum` overwrote, else the last one (all parts are finite, their sum is not).
inline std::uint64_t find_bad(const float* sum, std::span<const float* const> parts, std::uint64_t count,
                              const NormCheck& what) noexcept {
  std::uint64_t at = 0;
  while (at < count && std::isfinite(sum[at])) ++at;
  if (at == count) return 0;
  std::uint64_t own = parts.size() - 1;
  for (std::uint64_t part = 0; part < parts.size(); ++part) {
    if (parts[part] == sum) {
      own = part;
    } else if (!std::isfinite(parts[part][at])) {
      return bad_at(what.first_element + at, what.rank_of(part));
    }
  }
  return bad_at(what.first_element + at, what.rank_of(own));
}

/// Adds `squares` to `sums` and, if they are not finite, searches for the first bad element.
inline void note_gradient(StepSums& sums, double squares, const float* sum, std::span<const float* const> parts,
                          std::uint64_t count, const NormCheck& what) noexcept {
  if (what.squares) sums.gradient_squares += squares;
  if (std::isfinite(squares)) return;
  const std::uint64_t bad = find_bad(sum, parts, count, what);
  if (bad != 0 && (sums.bad_gradient == 0 || bad < sums.bad_gradient)) sums.bad_gradient = bad;
}

/// The same with the sum of squares, for `sum`, which is the sum of `parts`.
inline void check_gradient(StepSums& sums, const float* sum, std::span<const float* const> parts, std::uint64_t count,
                           const NormCheck& what) noexcept {
  SquareLanes lanes{};
  add_squares(lanes, sum, count);
  note_gradient(sums, fold(lanes), sum, parts, count, what);
}

}  // namespace troupe
