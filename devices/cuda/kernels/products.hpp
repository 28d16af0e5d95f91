#pragma once

#include "devices/cuda/kernels/numbers.hpp"

// Products of matrices. A block of threads computes a tile of the result at a time, over stretches of the inner extent,
// which it brings to its shared memory; each thread computes a square of the tile, in registers. While a stretch is
// multiplied, the next one is on its way. Sums are in f32 and in one order. Where there are fewer tiles than processors,
// the inner extent is cut into parts, whose sums a second kernel adds up.
namespace troupe::cuda {

/// The shapes of tiles. A product has the one in whose tiles the least is left empty.
/// A stretch has kDepth terms: of small tiles more, since there is less to multiply while the next one is on its way.
template <unsigned kOfRows, unsigned kOfColumns, unsigned kOfThread, unsigned kOfStretch>
struct Tile {
  static constexpr unsigned kRows = kOfRows, kColumns = kOfColumns, kPart = kOfThread, kDepth = kOfStretch;
  static_assert(kRows / kPart * (kColumns / kPart) == kBlockThreads);
};
using SquareTile = Tile<64, 64, 4, 16>;
using TallTile = Tile<128, 32, 4, 16>;                 // for few columns
using SmallTile = Tile<32, 32, 2, 32>;                 // for few rows and columns
inline constexpr std::uint64_t kMostOfTile = 64 * 64;  // elements

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

constexpr std::uint64_t tiles_over(std::uint64_t extent, unsigned side) noexcept { return (extent + side - 1) / side; }
template <class Tile>
constexpr std::uint64_t count_tiles(const ProductExtents& of) noexcept {
  return of.batches * tiles_over(of.rows, Tile::kRows) * tiles_over(of.columns, Tile::kColumns);
}

enum class TileShape : std::uint32_t { square, tall, small };
/// A small tile's threads read twice as much of the shared memory for each product.
constexpr TileShape tile_shape(const ProductExtents& of) noexcept {
  const std::uint64_t square = count_tiles<SquareTile>(of), tall = count_tiles<TallTile>(of),
                      small = count_tiles<SmallTile>(of);
  if (small * 2 < square * 4 && small * 2 < tall * 4) return TileShape::small;
  return tall < square ? TileShape::tall : TileShape::square;
}
/// In one part.
constexpr std::uint64_t count_tiles(const ProductExtents& of) noexcept {
  switch (tile_shape(of)) {
    case TileShape::tall: return count_tiles<TallTile>(of);
    case TileShape::small: return count_tiles<SmallTile>(of);
    default: return count_tiles<SquareTile>(of);
  }
}
/// How many terms of the inner extent a part has; the last one may have fewer.
constexpr std::uint64_t terms_of_part(const ProductExtents& of, std::uint32_t parts) noexcept {
  constexpr std::uint64_t kTogether = 16;
  const std::uint64_t stretches = (of.inner + kTogether - 1) / kTogether;
  return (stretches + parts - 1) / parts * kTogether;
}

/// A row of a thread's part of a tile.
template <unsigned kCount>
struct alignas(4 * kCount) TileRow {
  float of[kCount];
};
/// Elements from one term of an operand to the next: behind each there is room, which keeps threads out of each other's
/// bank.
constexpr unsigned tile_pitch(unsigned side) noexcept { return side + 4; }

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

/// As it is stored: a thread has several on their way at once, and widens them afterwards.
using Element = StoredNumbers<1>;
TROUPE_KERNEL_BODY Element element_at(const void* from, Stored type, std::uint64_t index) {
  return bring(Width<1>{}, from, type, index);
}

/// What a thread brings of an operand of `kSide` rows or columns (its lines), with `kSide / 16` elements of each
/// stretch. Where terms are next to each other in memory, threads that follow each other bring terms that do, otherwise
/// lines. What belongs to a line is found once, and what belongs to a term once for each stretch.
template <unsigned kSide, unsigned kDepth, class Line>
class Bringing {
 public:
  static constexpr unsigned kCount = kSide * kDepth / kBlockThreads;

  /// `line_of(l)`: of line `first + l`, where there is one.
  template <class LineOf>
  TROUPE_KERNEL_MEMBER void begin(unsigned thread, bool by_terms, std::uint64_t first, std::uint64_t count_lines,
                                  const LineOf& line_of) {
    are_there_ = 0;
    for (unsigned n = 0; n < kCount; ++n) {
      if (n != 0 && !by_terms) break;
      const std::uint64_t at = first + line(thread, by_terms, n);
      if (at >= count_lines) continue;
      are_there_ |= 1U << n;
      lines_[n] = line_of(at);
    }
  }
  /// The stretch that begins at `term`, of terms that end at `end`.
  template <class TermOf, class ElementOf>
  TROUPE_KERNEL_MEMBER void bring(unsigned thread, bool by_terms, std::uint64_t term, std::uint64_t end,
                                  const TermOf& term_of, const ElementOf& element_of) {
    if (by_terms) {
      const std::uint64_t at = term + thread % kDepth;
      const auto of_term = term_of(at < end ? at : term);
      for (unsigned n = 0; n < kCount; ++n)
        brought_[n] = at < end && is_there(n) ? element_of(lines_[n], of_term) : Element{};
    } else {
      for (unsigned n = 0; n < kCount; ++n) {
        const std::uint64_t at = term + thread / kSide + n * (kBlockThreads / kSide);
        brought_[n] = at < end && is_there(0) ? element_of(lines_[0], term_of(at)) : Element{};
      }
    }
  }
  /// To the block's memory: [terms, lines].
  TROUPE_KERNEL_MEMBER void put(unsigned thread, bool by_terms, Stored type, float* shared) const {
    for (unsigned n = 0; n < kCount; ++n) {
      const unsigned term = by_terms ? thread % kDepth : thread / kSide + n * (kBlockThreads / kSide);
      shared[term * tile_pitch(kSide) + line(thread, by_terms, n)] = widened(brought_[n], type).of[0];
    }
  }

 private:
  TROUPE_KERNEL_MEMBER bool is_there(unsigned n) const { return (are_there_ >> n & 1U) != 0; }
  static TROUPE_KERNEL_MEMBER unsigned line(unsigned thread, bool by_terms, unsigned n) {
    return by_terms ? thread / kDepth + n * (kBlockThreads / kDepth) : thread % kSide;
  }

  Line lines_[kCount];
  Element brought_[kCount];
  std::uint32_t are_there_;  // a bit for each line
};

template <class Tile, class Product>
TROUPE_KERNEL_BODY void multiply_tiles_of(const Block& block, const ProductExtents& of, const ProductTo& to,
                                          const Product& product, float* left) {
  constexpr unsigned kPart = Tile::kPart, kAcross = Tile::kColumns / kPart;
  constexpr unsigned kLeftPitch = tile_pitch(Tile::kRows), kRightPitch = tile_pitch(Tile::kColumns);
  using LeftLine = decltype(product.left_row(0, 0));
  using RightLine = decltype(product.right_column(0, 0));
  struct Sums {
    TileRow<kPart> rows[kPart];
  };
  float* const right = left + Tile::kDepth * kLeftPitch;
  void* const at = to.parts > 1 ? nullptr : block.at(to.at);
  float* const partial = block.at(to.partial);
  const float* const bias = block.at(to.bias);
  const float scale = to.parts > 1 ? 1.0F : to.scale * value_of(block, to.factor);
  const bool l = product.left_by_terms(), r = product.right_by_terms();
  const std::uint64_t down = tiles_over(of.rows, Tile::kRows), across = tiles_over(of.columns, Tile::kColumns);
  const std::uint64_t tiles = count_tiles<Tile>(of) * to.parts, terms = terms_of_part(of, to.parts);
  for (std::uint64_t tile = block.index(); tile < tiles; tile += block.count()) {
    const std::uint64_t first_column = tile % across * Tile::kColumns, first_row = tile / across % down * Tile::kRows;
    const std::uint64_t part = tile / (across * down) % to.parts, batch = tile / (across * down) / to.parts;
    const std::uint64_t end = (part + 1) * terms < of.inner ? (part + 1) * terms : of.inner;
    OfEachThread<Sums> all;
    OfEachThread<Bringing<Tile::kRows, Tile::kDepth, LeftLine>> lefts;
    OfEachThread<Bringing<Tile::kColumns, Tile::kDepth, RightLine>> rights;
    const auto bring = [&](unsigned t, std::uint64_t term) {
      lefts[t].bring(
          t, l, term, end, [&](std::uint64_t k) { return product.left_term(batch, k); },
          [&](const auto& row, const auto& k) { return product.left(row, k); });
      rights[t].bring(
          t, r, term, end, [&](std::uint64_t k) { return product.right_term(batch, k); },
          [&](const auto& column, const auto& k) { return product.right(column, k); });
    };
    block.for_each_thread([&](unsigned t) {
      all[t] = Sums{};
      lefts[t].begin(t, l, first_row, of.rows, [&](std::uint64_t row) { return product.left_row(batch, row); });
      rights[t].begin(t, r, first_column, of.columns,
                      [&](std::uint64_t column) { return product.right_column(batch, column); });
      if (part * terms < end) bring(t, part * terms);
    });
    for (std::uint64_t term = part * terms; term < end; term += Tile::kDepth) {
      block.for_each_thread([&](unsigned t) {
        lefts[t].put(t, l, product.left_type(), left);
        rights[t].put(t, r, product.right_type(), right);
      });
      block.barrier();
      block.for_each_thread([&](unsigned t) {
        if (term + Tile::kDepth < end) bring(t, term + Tile::kDepth);
        const unsigned row = t / kAcross * kPart, column = t % kAcross * kPart;
        if (first_row + row >= of.rows || first_column + column >= of.columns) return;
        Sums sums = all[t];
        for (unsigned k = 0; k < Tile::kDepth; ++k) {
          const auto a = *reinterpret_cast<const TileRow<kPart>*>(left + k * kLeftPitch + row);
          const auto b = *reinterpret_cast<const TileRow<kPart>*>(right + k * kRightPitch + column);
          for (unsigned i = 0; i < kPart; ++i)
            for (unsigned j = 0; j < kPart; ++j)
              sums.rows[i].of[j] = multiply_add(a.of[i], b.of[j], sums.rows[i].of[j]);
        }
        all[t] = sums;
      });
      block.barrier();
    }
    block.for_each_thread([&](unsigned t) {
      const std::uint64_t row = first_row + t / kAcross * kPart, column = first_column + t % kAcross * kPart;
      for (unsigned i = 0; i < kPart && row + i < of.rows; ++i)
        for (unsigned j = 0; j < kPart && column + j < of.columns; ++j)
          put_sum(to, at, partial, bias, part, product.index(batch, row + i, column + j),
                  product.column(batch, column + j), all[t].rows[i].of[j], scale);
    });
  }
}

/// `product` gives the elements of batch b as left(left_row(b, row), left_term(b, term)) and right(right_column(b,
/// column), right_term(b, term)), of left_type() and right_type(), what is next to what in memory by left_by_terms()
/// and right_by_terms(), and where a sum goes by index(b, row, column) and column(b, column).
template <class Product>
TROUPE_KERNEL_BODY void multiply_tiles(const Block& block, const ProductExtents& of, const ProductTo& to,
                                       const Product& product) {
  constexpr unsigned kMostShared = TallTile::kDepth * (tile_pitch(TallTile::kRows) + tile_pitch(TallTile::kColumns));
  auto* const shared = reinterpret_cast<float*>(block.template shared<TileRow<4>, kMostShared / 4>());
  switch (tile_shape(of)) {
    case TileShape::square: return multiply_tiles_of<SquareTile>(block, of, to, product, shared);
    case TileShape::tall: return multiply_tiles_of<TallTile>(block, of, to, product, shared);
    case TileShape::small: return multiply_tiles_of<SmallTile>(block, of, to, product, shared);
  }
}

/// What the parts of a product have in sum goes to its place.
struct AddPartsArgs {
  const StreamState* stream;
  ProductTo to;
  std::uint64_t bias_width;  // the bias repeats after so many elements
};
/// How many threads of a warp add up the parts of an element, each of them every so many-th part: one thread alone
/// would wait for memory again and again.
constexpr unsigned count_adders(std::uint32_t parts) noexcept {
  return parts >= 128 ? kWarpThreads : parts >= 32 ? kWarpThreads / 4 : parts >= 8 ? 2 : 1;
}
/// What the threads of add_parts divide among them.
constexpr std::uint64_t count_items(const AddPartsArgs& args) noexcept {
  return args.to.count * count_adders(args.to.parts);
}

/// Sums of neighbouring elements.
template <unsigned kCount>
struct PartSums {
  Numbers<kCount> of_elements;
  TROUPE_KERNEL_MEMBER void add(const PartSums& other) {
    for (unsigned k = 0; k < kCount; ++k) of_elements.of[k] += other.of_elements.of[k];
  }
};

/// The sum of a pack, or an element, to its place.
template <unsigned kCount>
TROUPE_KERNEL_BODY void put_parts(const Block& block, const AddPartsArgs& args, std::uint64_t i, Numbers<kCount> sum) {
  constexpr Width<kCount> kWidth{};
  void* const at = block.at(args.to.at);
  const float* const bias = block.at(args.to.bias);
  const float scale = args.to.scale * value_of(block, args.to.factor);
  for (float& one : sum.of) one *= scale;
  if (bias != nullptr) {
    const auto more = load(kWidth, bias, Stored::f32, place_in_rows(i, args.bias_width).column);
    for (unsigned k = 0; k < kCount; ++k) sum.of[k] += more.of[k];
  }
  if (args.to.adds != 0) {
    const auto before = load(kWidth, at, args.to.type, i);
    for (unsigned k = 0; k < kCount; ++k) sum.of[k] += before.of[k];
  }
  store(kWidth, at, args.to.type, i, sum);
}

template <unsigned kCount>
TROUPE_KERNEL_BODY void add_parts_by(const Block& block, const AddPartsArgs& args) {
  const float* const partial = block.at(args.to.partial);
  const unsigned adders = count_adders(args.to.parts), across = kWarpThreads / adders;
  const std::uint64_t packs = args.to.count / kCount, of_block = kBlockThreads / adders;
  for (std::uint64_t first = block.index() * of_block; first < packs; first += block.count() * of_block) {
    OfEachThread<PartSums<kCount>> sums;
    const auto pack_of = [&](unsigned t) { return first + t / kWarpThreads * across + t % across; };
    block.for_each_thread([&](unsigned t) {
      sums[t] = PartSums<kCount>{};
      if (pack_of(t) >= packs) return;
      for (std::uint32_t part = t % kWarpThreads / across; part < args.to.parts; part += adders)
        sums[t].add({load(Width<kCount>{}, partial, Stored::f32, part * args.to.count + pack_of(t) * kCount)});
    });
    block.add_up_warps(sums, across);
    block.for_each_thread([&](unsigned t) {
      if (t % kWarpThreads < across && pack_of(t) < packs)
        put_parts(block, args, pack_of(t) * kCount, sums[t].of_elements);
    });
  }
}

TROUPE_KERNEL_BODY void add_parts(const Block& block, const AddPartsArgs& args) {
  const bool in_packs = has_packs(block.at(args.to.partial), Stored::f32, args.to.count) &&
                        is_in_packs(block.at(args.to.at), args.to.type) &&
                        (args.to.bias == nullptr || has_packs(block.at(args.to.bias), Stored::f32, args.bias_width));
  in_packs ? add_parts_by<kPack>(block, args) : add_parts_by<1>(block, args);
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
  TROUPE_KERNEL_MEMBER Stored left_type() const { return args.a.type; }
  TROUPE_KERNEL_MEMBER Stored right_type() const { return args.b.type; }
  TROUPE_KERNEL_MEMBER std::uint32_t left_row(std::uint64_t, std::uint64_t row) const {
    return static_cast<std::uint32_t>(row);
  }
  TROUPE_KERNEL_MEMBER std::uint64_t left_term(std::uint64_t batch, std::uint64_t term) const {
    return args.a.index(batch, args.inner_batches, 0, term);
  }
  TROUPE_KERNEL_MEMBER Element left(std::uint32_t row, std::uint64_t term) const {
    return element_at(a, args.a.type, term + row * args.a.rows);
  }
  TROUPE_KERNEL_MEMBER std::uint32_t right_column(std::uint64_t, std::uint64_t column) const {
    return static_cast<std::uint32_t>(column);
  }
  TROUPE_KERNEL_MEMBER std::uint64_t right_term(std::uint64_t batch, std::uint64_t term) const {
    return args.b.index(batch, args.inner_batches, term, 0);
  }
  TROUPE_KERNEL_MEMBER Element right(std::uint32_t column, std::uint64_t term) const {
    return element_at(b, args.b.type, term + column * args.b.columns);
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
