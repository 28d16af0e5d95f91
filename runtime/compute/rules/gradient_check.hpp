#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "runtime/compute/rules/square_sums.hpp"
#include "runtime/compute/stream.hpp"

// The arithmetic of Stream::reduce with a check, which all devices repeat exactly.
namespace troupe {

inline constexpr std::size_t kGradientStrands = 2048;

/// The sum of the squares of `values`, [count]; `add_squares(lanes, values, count)` adds those of a piece to its lanes.
template <class AddSquares>
double sum_of_squares(const float* values, std::uint64_t count, AddSquares&& add_squares) {
  SquareStrands<kGradientStrands> strands(count);
  for_each_square_piece(count, [&](std::uint64_t first, std::uint64_t some, std::uint64_t piece) {
    SquareLanes lanes{};
    add_squares(lanes.data(), values + first, some);
    strands.add(piece, lanes);
  });
  return strands.sum();
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
  const double squares = sum_of_squares(sum, count, [](double* lanes, const float* values, std::uint64_t some) {
    for (std::uint64_t i = 0; i < some; ++i) lanes[i % kSquareLanes] += static_cast<double>(values[i]) * values[i];
  });
  note_gradient(sums, squares, sum, parts, count, what);
}

}  // namespace troupe
