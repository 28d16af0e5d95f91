#pragma once

#include "devices/cuda/kernels/numbers.hpp"

// Products of matrices. A block of threads computes a tile of 64 by 64 at a time, over
// stretches of 16 of the inner extent, which it brings to its shared memory; each thread 4 by 4 of it, in registers.
// Sums are in f32 and in one order. Where there are fewer tiles than processors, the inner extent is cut into parts,
// whose sums a second kernel adds up.
namespace troupe::cuda {

inline constexpr unsigned kTileSide = 64, kTileDepth = 16, kTilePart = 4;
static_assert(kTileSide / kTilePart * (kTileSide / kTilePart) == kBlockThreads);

/// Where the sums of a product go.
struct ProductTo {
  void* at;
  const float* bias;    // added to each column; null: none
  float* partial;       // [parts, count], where there are several parts
  std::uint64_t count;  // elements of the whole result
  Stored type;
  std::uint32_t adds;  // to what stands there; 0: it is overwritten
  std::uint32_t parts;
  float scale;
  Factor factor{};  // of `scale`
};

/// The extents of a product: `batches` matrices [rows, columns], sums of `inner` terms.
struct ProductExtents {
  std::uint64_t batches, rows, columns, inner;
};

constexpr std::uint64_t tiles_over(std::uint64_t extent) noexcept { return (extent + kTileSide - 1) / kTileSide; }
/// In one part.
constexpr std::uint64_t count_tiles(const ProductExtents& of) noexcept {
  return of.batches * tiles_over(of.rows) * tiles_over(of.columns);
}
/// How many terms of the inner extent a part has; the last one may have fewer.
constexpr std::uint64_t terms_of_part(const ProductExtents& of, std::uint32_t parts) noexcept {
  const std::uint64_t stretches = (of.inner + kTileDepth - 1) / kTileDepth;
  return (stretches + parts - 1) / parts * kTileDepth;
}

struct alignas(16) FourFloats {
  float of[kTilePart];
};
/// A thread's part of a tile.
struct TileSums {
  FourFloats rows[kTilePart];
};
/// A stretch of both operands: for each term 64 elements. The room behind them keeps threads out of each other's bank.
inline constexpr unsigned kTilePitch = kTileSide + kTilePart;

TROUPE_KERNEL_BODY void put_sum(const ProductTo& to, void* at, float* partial, const float* bias, std::uint64_t part,
                                std::uint64_t index, std::uint64_t column, float sum, float scale) {
  if (to.parts > 1) {
    partial[part * to.count + index] = sum;
    return;
  }
  float value = sum * scale;
  if (bias != nullptr) value += bias[column];
  if (to.adds != 0) value += load(at, to.type, index);
  store(at, to.type, index, value);
}

/// `product` gives the elements of batch b by left(b, row, term) and right(b, term, column), what is next to what in
/// memory by left_by_terms() and right_by_terms(), and where a sum goes by index(b, row, column) and column(b, column).
template <class Product>
TROUPE_KERNEL_BODY void multiply_tiles(const Block& block, const ProductExtents& of, const ProductTo& to,
                                       const Product& product) {
  constexpr unsigned kOperand = kTileDepth * kTilePitch;
  auto* const left = reinterpret_cast<float*>(block.shared<FourFloats, 2 * kOperand / kTilePart>());
  float* const right = left + kOperand;
  void* const at = to.parts > 1 ? nullptr : block.at(to.at);
  float* const partial = block.at(to.partial);
  const float* const bias = block.at(to.bias);
  const float scale = to.parts > 1 ? 1.0F : to.scale * value_of(block, to.factor);
  const std::uint64_t down = tiles_over(of.rows), across = tiles_over(of.columns);
  const std::uint64_t tiles = count_tiles(of) * to.parts, terms = terms_of_part(of, to.parts);
  for (std::uint64_t tile = block.index(); tile < tiles; tile += block.count()) {
    const std::uint64_t first_column = tile % across * kTileSide, first_row = tile / across % down * kTileSide;
    const std::uint64_t part = tile / (across * down) % to.parts, batch = tile / (across * down) / to.parts;
    const std::uint64_t end = (part + 1) * terms < of.inner ? (part + 1) * terms : of.inner;
    OfEachThread<TileSums> all;
    block.for_each_thread([&](unsigned t) { all[t] = TileSums{}; });
    for (std::uint64_t term = part * terms; term < end; term += kTileDepth) {
      block.for_each_thread([&](unsigned t) {
        for (unsigned i = t; i < kTileSide * kTileDepth; i += kBlockThreads) {
          const bool l = product.left_by_terms(), r = product.right_by_terms();
          const unsigned left_row = l ? i / kTileDepth : i % kTileSide, left_term = l ? i % kTileDepth : i / kTileSide;
          const unsigned right_column = r ? i / kTileDepth : i % kTileSide;
          const unsigned right_term = r ? i % kTileDepth : i / kTileSide;
          const bool has_left = first_row + left_row < of.rows && term + left_term < end;
          const bool has_right = first_column + right_column < of.columns && term + right_term < end;
          left[left_term * kTilePitch + left_row] =
              has_left ? product.left(batch, first_row + left_row, term + left_term) : 0.0F;
          right[right_term * kTilePitch + right_column] =
              has_right ? product.right(batch, term + right_term, first_column + right_column) : 0.0F;
        }
      });
      block.barrier();
      block.for_each_thread([&](unsigned t) {
        const unsigned row = t / (kTileSide / kTilePart) * kTilePart, column = t % (kTileSide / kTilePart) * kTilePart;
        if (first_row + row >= of.rows || first_column + column >= of.columns) return;
        TileSums sums = all[t];
        for (unsigned k = 0; k < kTileDepth; ++k) {
          const FourFloats a = *reinterpret_cast<const FourFloats*>(left + k * kTilePitch + row);
          const FourFloats b = *reinterpret_cast<const FourFloats*>(right + k * kTilePitch + column);
          for (unsigned i = 0; i < kTilePart; ++i)
            for (unsigned j = 0; j < kTilePart; ++j)
              sums.rows[i].of[j] = multiply_add(a.of[i], b.of[j], sums.rows[i].of[j]);
        }
        all[t] = sums;
      });
      block.barrier();
    }
    block.for_each_thread([&](unsigned t) {
      const std::uint64_t row = first_row + t / (kTileSide / kTilePart) * kTilePart;
      const std::uint64_t column = first_column + t % (kTileSide / kTilePart) * kTilePart;
      for (unsigned i = 0; i < kTilePart && row + i < of.rows; ++i)
        for (unsigned j = 0; j < kTilePart && column + j < of.columns; ++j)
          put_sum(to, at, partial, bias, part, product.index(batch, row + i, column + j),
                  product.column(batch, column + j), all[t].rows[i].of[j], scale);
    });
  }
}

/// What the parts of a product have in sum goes to its place.
struct AddPartsArgs {
  const StreamState* stream;
  ProductTo to;
  std::uint64_t bias_width;  // the bias repeats after so many elements
};
TROUPE_KERNEL_BODY void add_parts(const Block& block, const AddPartsArgs& args) {
  void* const at = block.at(args.to.at);
  const float* const partial = block.at(args.to.partial);
  const float* const bias = block.at(args.to.bias);
  const float scale = args.to.scale * value_of(block, args.to.factor);
  const bool in_packs = has_packs(partial, Stored::f32, args.to.count) && is_in_packs(at, args.to.type) &&
                        (bias == nullptr || has_packs(bias, Stored::f32, args.bias_width));
  for_each_pack(block, args.to.count, in_packs, [&](auto width, std::uint64_t i) {
    Numbers<width.value> sum{};
    for (std::uint32_t part = 0; part < args.to.parts; ++part) {
      const auto more = load(width, partial, Stored::f32, part * args.to.count + i);
      for (unsigned k = 0; k < width(); ++k) sum.of[k] += more.of[k];
    }
    for (float& one : sum.of) one *= scale;
    if (bias != nullptr) {
      const auto more = load(width, bias, Stored::f32, place_in_rows(i, args.bias_width).column);
      for (unsigned k = 0; k < width(); ++k) sum.of[k] += more.of[k];
    }
    if (args.to.adds != 0) {
      const auto before = load(width, at, args.to.type, i);
      for (unsigned k = 0; k < width(); ++k) sum.of[k] += before.of[k];
    }
    store(width, at, args.to.type, i, sum);
  });
}

/// Matrices by their strides: element (r, c) of matrix (o, i) is at o * outer + i * inner + r * rows + c * columns.
struct Matrix {
  const void* at;
  std::uint64_t rows;     // elements from one row to the next
  std::uint64_t columns;  // likewise
  std::uint64_t outer;
  std::uint64_t inner;
  Stored type;
  std::uint32_t reserved;

  constexpr std::uint64_t index(std::uint64_t batch, std::uint64_t inner_batches, std::uint64_t row,
                                std::uint64_t column) const noexcept {
    const std::uint64_t of_batch =
        inner_batches == 0 ? 0 : batch / inner_batches * outer + batch % inner_batches * inner;
    return of_batch + row * rows + column * columns;
  }
};

/// to[r, c] = scale times the sum over k of a[r, k] b[k, c], plus bias[c], for each batch.
struct MultiplyArgs {
  const StreamState* stream;
  ProductTo to;
  Matrix place;  // of the result; several parts: it is dense
  Matrix a;
  Matrix b;
  ProductExtents extents;
  std::uint64_t inner_batches;  // batch = o * inner_batches + i; 0: there is one
};

struct MatrixProduct {
  const MultiplyArgs& args;
  const void* a;
  const void* b;

  TROUPE_KERNEL_MEMBER bool left_by_terms() const { return args.a.columns == 1; }
  TROUPE_KERNEL_MEMBER bool right_by_terms() const { return args.b.rows == 1; }
  TROUPE_KERNEL_MEMBER float left(std::uint64_t batch, std::uint64_t row, std::uint64_t term) const {
    return load(a, args.a.type, args.a.index(batch, args.inner_batches, row, term));
  }
  TROUPE_KERNEL_MEMBER float right(std::uint64_t batch, std::uint64_t term, std::uint64_t column) const {
    return load(b, args.b.type, args.b.index(batch, args.inner_batches, term, column));
  }
  TROUPE_KERNEL_MEMBER std::uint64_t index(std::uint64_t batch, std::uint64_t row, std::uint64_t column) const {
    return args.place.index(batch, args.inner_batches, row, column);
  }
  TROUPE_KERNEL_MEMBER std::uint64_t column(std::uint64_t, std::uint64_t column) const { return column; }
};

TROUPE_KERNEL_BODY void multiply(const Block& block, const MultiplyArgs& args) {
  multiply_tiles(block, args.extents, args.to, MatrixProduct{args, block.at(args.a.at), block.at(args.b.at)});
}

#if !defined(__CUDACC__)
/// The bias has `width` elements. Of a result with strides, everything between its first and its last element.
inline void declare(Accesses& touched, const ProductTo& to, std::uint64_t width, std::uint64_t span) {
  touched.reads(to.bias, width * sizeof(float));
  if (to.parts > 1) return touched.writes(to.partial, to.parts * to.count * sizeof(float));
  touched.reads(to.factor.at, sizeof(float));
  touched.writes(to.at, span * bytes_of(to.type));
}
inline void declare(Accesses& touched, const AddPartsArgs& args) {
  touched.reads(args.to.partial, args.to.parts * args.to.count * sizeof(float));
  touched.reads(args.to.bias, args.bias_width * sizeof(float));
  touched.reads(args.to.factor.at, sizeof(float));
  touched.writes(args.to.at, args.to.count * bytes_of(args.to.type));
}
inline void declare(Accesses& touched, const MultiplyArgs& args) {
  const ProductExtents& e = args.extents;
  const auto span = [&](const Matrix& of, std::uint64_t rows, std::uint64_t columns) {
    if (e.batches == 0 || rows == 0 || columns == 0) return std::uint64_t{0};
    const std::uint64_t inner = args.inner_batches == 0 ? 1 : args.inner_batches;
    return (e.batches / inner - 1) * of.outer + (inner - 1) * of.inner + (rows - 1) * of.rows +
           (columns - 1) * of.columns + 1;
  };
  touched.reads(args.a.at, span(args.a, e.rows, e.inner) * bytes_of(args.a.type));
  touched.reads(args.b.at, span(args.b, e.inner, e.columns) * bytes_of(args.b.type));
  declare(touched, args.to, e.columns, span(args.place, e.rows, e.columns));
}
#endif

}  // namespace troupe::cuda
