#include "devices/cuda/library_product.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace troupe::cuda {
namespace {

constexpr std::uint64_t kMostExtent = std::numeric_limits<std::int32_t>::max();

bool is_usable(std::uint64_t extent) noexcept { return extent != 0 && extent <= kMostExtent; }

struct Operand {
  ColumnMajor matrix;
  bool is_transposed = false;  // its columns lie one after the other
};

/// A matrix of `rows` by `columns`.
std::optional<Operand> operand(const Matrix& of, std::uint64_t rows, std::uint64_t columns) {
  Operand found;
  found.matrix.type = of.type;
  const bool by_rows = of.columns == 1 && (of.rows >= columns || rows == 1);
  const bool by_columns = of.rows == 1 && (of.columns >= rows || columns == 1);
  if (!by_rows && !by_columns) return std::nullopt;
  found.is_transposed = !by_rows;
  found.matrix.rows = by_rows ? columns : rows;
  found.matrix.columns = by_rows ? rows : columns;
  const std::uint64_t leading = std::max(by_rows ? of.rows : of.columns, found.matrix.rows);
  if (leading > kMostExtent) return std::nullopt;
  found.matrix.leading = static_cast<std::int64_t>(leading);
  return found;
}

/// What all of the addresses are multiples of.
std::uint32_t alignment_of(const void* at, std::uint64_t step_bytes, std::uint64_t stride_bytes) noexcept {
  constexpr std::uint64_t kMost = 256;
  const std::uint64_t all = reinterpret_cast<std::uintptr_t>(at) | step_bytes | stride_bytes | kMost;
  return std::uint32_t{1} << std::countr_zero(all);
}

/// How a batch of `outer` times `inner` matrices becomes calls.
struct Batches {
  std::uint64_t calls, of_call;
  bool strides_outer;  // those of one call are apart as the outer ones are
};
Batches batches_of(const MultiplyArgs& args) noexcept {
  const std::uint64_t inner = args.inner_batches == 0 ? 1 : args.inner_batches, outer = args.extents.batches / inner;
  return outer >= inner ? Batches{inner, outer, true} : Batches{outer, inner, false};
}

/// Strides of one operand; the bytes from one call to the next.
std::uint64_t place(const Batches& batches, const Matrix& of, const void* at, ColumnMajor& matrix) noexcept {
  const std::uint64_t size = bytes_of(of.type);
  const std::uint64_t stride = batches.of_call == 1 ? 0 : batches.strides_outer ? of.outer : of.inner;
  const std::uint64_t step = batches.calls == 1 ? 0 : batches.strides_outer ? of.inner : of.outer;
  matrix.batch_stride = static_cast<std::int64_t>(stride);
  matrix.alignment = alignment_of(at, step * size, stride * size);
  return step * size;
}

}  // namespace

std::optional<LibraryProduct> library_product(const MultiplyArgs& args) {
  const ProductExtents& e = args.extents;
  if (!is_usable(e.batches) || !is_usable(e.rows) || !is_usable(e.columns) || !is_usable(e.inner)) return std::nullopt;
  if (args.a.type != args.b.type) return std::nullopt;
  const auto left = operand(args.a, e.rows, e.inner), right = operand(args.b, e.inner, e.columns);
  const auto to = operand(args.place, e.rows, e.columns);
  if (!left || !right || !to || to->is_transposed) return std::nullopt;
  LibraryProduct made{.form = {.a = right->matrix,
                               .b = left->matrix,
                               .d = to->matrix,
                               .transposes_a = right->is_transposed,
                               .transposes_b = left->is_transposed},
                      .a = args.b.at,
                      .b = args.a.at,
                      .d = args.to.at};
  const Batches batches = batches_of(args);
  made.form.batches = static_cast<std::uint32_t>(batches.of_call);
  made.calls = static_cast<std::uint32_t>(batches.calls);
  made.step_a = place(batches, args.b, made.a, made.form.a);
  made.step_b = place(batches, args.a, made.b, made.form.b);
  made.form.d.type = args.to.type;
  made.step_d = place(batches, args.place, made.d, made.form.d);
  return made;
}

}  // namespace troupe::cuda
