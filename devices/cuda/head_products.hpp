#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "devices/cuda/kernels/list.hpp"

namespace troupe::cuda {

/// The products of attention: matrices of each head of each row. Tensors are [rows, length, parts of width], a weight
/// is [rows, heads, length, length].
class HeadProducts {
 public:
  HeadProducts(std::uint64_t rows, std::uint64_t heads, std::uint64_t length, std::uint64_t width) noexcept
      : rows_(rows), heads_(heads), length_(length), width_(width) {}

  std::uint64_t part() const noexcept { return width_ / heads_; }
  std::uint64_t count_weights() const noexcept { return rows_ * heads_ * length_ * length_; }
  std::uint64_t count_weight_rows() const noexcept { return rows_ * heads_ * length_; }
  std::uint64_t count_input() const noexcept { return 3 * count_output(); }
  std::uint64_t count_output() const noexcept { return rows_ * length_ * width_; }
  std::uint64_t length() const noexcept { return length_; }
  float scale() const noexcept { return 1 / std::sqrt(static_cast<float>(part())); }

  /// Queries (0), keys (1) or values (2) of [length, 3 width], or the gradients to them.
  Matrix of_input(const void* at, Stored type, std::uint64_t which) const noexcept {
    const auto* const first = static_cast<const std::byte*>(at) + which * width_ * bytes_of(type);
    return {first, 3 * width_, 1, length_ * 3 * width_, part(), type, 0};
  }
  Matrix of_output(const void* at, Stored type) const noexcept {
    return {at, width_, 1, length_ * width_, part(), type, 0};
  }
  Matrix weights(const void* at, Stored type) const noexcept {
    return {at, length_, 1, heads_ * length_ * length_, length_ * length_, type, 0};
  }
  static Matrix transposed(Matrix of) noexcept {
    std::swap(of.rows, of.columns);
    return of;
  }
  /// to [length, columns] = scale a b, in one part.
  MultiplyArgs product(const Matrix& to, std::uint32_t adds, const Matrix& a, const Matrix& b, std::uint64_t columns,
                       std::uint64_t inner, float scale = 1) const noexcept {
    MultiplyArgs args{};
    args.to.at = const_cast<void*>(to.at), args.to.type = to.type, args.to.adds = adds, args.to.scale = scale;
    args.to.parts = 1;
    args.place = to, args.a = a, args.b = b;
    args.extents = {rows_ * heads_, length_, columns, inner};
    args.inner_batches = heads_;
    return args;
  }
  /// Scores become weights, a row for each place of each head.
  SoftmaxRowsArgs softmax(void* weights, const float* scores, bool causal, Stored type) const noexcept {
    return {nullptr, weights, scores, count_weight_rows(), length_, causal ? 1U : 0U, type};
  }
  /// Gradients to weights become those to scores.
  SoftmaxRowsBackArgs softmax_back(void* to, const float* gradient, const void* weights, Stored type) const noexcept {
    return {nullptr, to, gradient, weights, count_weight_rows(), length_, scale(), type};
  }

 private:
  const std::uint64_t rows_, heads_, length_, width_;
};

}  // namespace troupe::cuda
