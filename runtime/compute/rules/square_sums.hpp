#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

// The order in which squares are added up, so that all devices find the same bits with as many threads as they have. A
// range of elements is divided into pieces. The squares of a piece are added in lanes: its element i in lane i mod 16
// (kSquareLanes), in ascending order; then the lanes are folded. The sums of pieces are added in strands: piece j in
// strand j mod the number of strands, in ascending order; then the strands are folded. To fold numbers: the upper half
// is added to the lower half, until one is left. The square of an f32 is exact in f64.
namespace troupe {

inline constexpr std::uint64_t kSquarePiece = 2048;  // elements

inline constexpr unsigned kSquareLanes = 16;

using SquareLanes = std::array<double, kSquareLanes>;

constexpr std::uint64_t count_square_pieces(std::uint64_t elements) noexcept {
  return (elements + kSquarePiece - 1) / kSquarePiece;
}

/// `count`: a power of two. What the numbers are afterwards is undefined.
inline double fold(double* numbers, std::size_t count) noexcept {
  for (std::size_t half = count / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) numbers[i] += numbers[half + i];
  return numbers[0];
}

/// The same, without a loop that a compiler leaves as one: each piece comes here.
inline double fold(SquareLanes& lanes) noexcept {
  static_assert(kSquareLanes == 16);
  for (std::size_t i = 0; i < 8; ++i) lanes[i] += lanes[8 + i];
  for (std::size_t i = 0; i < 4; ++i) lanes[i] += lanes[4 + i];
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

/// The strands of one sum.
template <std::size_t kStrands>
class SquareStrands {
 public:
  /// `elements`: of all ranges together. Strands that get no piece are 0, and are left out.
  explicit SquareStrands(std::uint64_t elements) noexcept
      : used_(std::bit_ceil(std::min<std::size_t>(kStrands, count_square_pieces(elements)))) {
    std::fill_n(strands_.begin(), used_, 0.0);
  }
  void add(std::uint64_t piece, SquareLanes& lanes) noexcept { strands_[piece % kStrands] += fold(lanes); }
  /// Once.
  double sum() noexcept { return fold(strands_.data(), used_); }

 private:
  const std::size_t used_;
  std::array<double, kStrands> strands_;
};

/// Calls act(first, count, piece) for each piece of a range of `count` elements.
template <class Act>
void for_each_square_piece(std::uint64_t count, Act&& act) {
  for (std::uint64_t piece = 0; piece * kSquarePiece < count; ++piece)
    act(piece * kSquarePiece, std::min(kSquarePiece, count - piece * kSquarePiece), piece);
}

}  // namespace troupe
