#pragma once

#include "devices/cuda/kernels/numbers.hpp"

// Sums over the rows of a matrix, and over its columns. Which thread adds up what depends on the extents and on where
// packs begin alone, so sums have one order.
namespace troupe::cuda {

/// A block takes 32 columns at a time, a thread one of them or a pack, so that neighbours in memory are read by
/// neighbouring threads.
inline constexpr unsigned kSummedColumns = 32, kWarps = kBlockThreads / kWarpThreads;
/// How many packs a thread has on their way at once.
inline constexpr unsigned kInFlight = 4;

struct ColumnSums {
  std::uint64_t count_rows, count_columns;
  std::uint32_t parts;  // that the rows are cut into; at most kMostArrivals tiles of columns, where there are several
  std::uint32_t reserved;
};
constexpr std::uint64_t tiles_across(const ColumnSums& of) noexcept {
  return (of.count_columns + kSummedColumns - 1) / kSummedColumns;
}
constexpr std::uint64_t count_tiles(const ColumnSums& of) noexcept { return tiles_across(of) * of.parts; }

/// Of neighbouring columns.
template <class Sum, unsigned kCount>
struct PackSums {
  Sum of[kCount];
  TROUPE_KERNEL_MEMBER void add(const PackSums& other) {
    for (unsigned k = 0; k < kCount; ++k) of[k].add(other.of[k]);
  }
};

/// sums[warp, column] = what the warp has found in its rows from `begin` to `end`, of the tile that begins with column
/// `first`. Each warp has rows of its own, in which threads stand side by side over the columns.
template <unsigned kCount, class Sum, class Own, class Bring, class Take>
TROUPE_KERNEL_BODY void sum_tile(Width<kCount> width, const Block& block, const ColumnSums& of, Sum* sums,
                                 std::uint64_t first, std::uint64_t begin, std::uint64_t end, const Bring& bring,
                                 const Take& take) {
  unsigned across = 1;  // threads, a power of two
  while (across * kCount < kSummedColumns && across * kCount < of.count_columns) across *= 2;
  const unsigned down = kBlockThreads / across;
  OfEachThread<PackSums<Sum, kCount>> all;
  block.for_each_thread([&](unsigned t) {
    Own own[kCount]{};
    const std::uint64_t column = first + t % across * kCount;
    const std::uint64_t until = column < of.count_columns ? end : 0;
    for (std::uint64_t row = begin + t / across; row < until; row += std::uint64_t{kInFlight} * down) {
      decltype(bring(width, row, column)) stored[kInFlight]{};
      for (unsigned n = 0; n < kInFlight; ++n)
        if (row + n * down < until) stored[n] = bring(width, row + n * down, column);
      for (unsigned n = 0; n < kInFlight; ++n)
        if (row + n * down < until) take(own, stored[n], row + n * down, column);
    }
    for (unsigned k = 0; k < kCount; ++k) all[t].of[k] = static_cast<Sum>(own[k]);
  });
  block.add_up_warps(all, across);
  block.for_each_thread([&](unsigned t) {
    if (t % kWarpThreads >= across) return;
    for (unsigned k = 0; k < kCount; ++k)
      sums[t / kWarpThreads * kSummedColumns + t % across * kCount + k] = all[t].of[k];
  });
}

/// The sum of each column of a tile over the warps' sums, which act(column, sum) gets in one thread.
template <class Sum, class Act>
TROUPE_KERNEL_BODY void with_sums_of_warps(const Block& block, const ColumnSums& of, const Sum* sums,
                                           std::uint64_t first, Act&& act) {
  block.barrier();
  block.for_each_thread([&](unsigned t) {
    if (t >= kSummedColumns || first + t >= of.count_columns) return;
    Sum sum = sums[t];
    for (unsigned warp = 1; warp < kWarps; ++warp) sum.add(sums[warp * kSummedColumns + t]);
    act(first + t, sum);
  });
  block.barrier();
}

/// finish(column, sum) for each column, once: with what take(own, stored, row, column) makes of empty sums for all
/// rows, where `own` are those of the columns that bring(width, row, column) has brought; `own` becomes a Sum, and Sums
/// are joined by Sum::add. Where rows are cut into parts, these leave their sums in `partial` [parts, columns], and the
/// last block to come adds them up. In packs: all of a row's are.
template <class Sum, class Own, class Bring, class Take, class Finish>
TROUPE_KERNEL_BODY void sum_columns_in_parts(const Block& block, const ColumnSums& of, Sum* partial,
                                             const StreamState* stream, bool in_packs, Bring&& bring, Take&& take,
                                             Finish&& finish) {
  Sum* const sums = block.shared<Sum, kWarps * kSummedColumns>();
  const std::uint64_t across = tiles_across(of), rows = (of.count_rows + of.parts - 1) / of.parts;
  for (std::uint64_t tile = block.index(); tile < across * of.parts; tile += block.count()) {
    const std::uint64_t part = tile / across, first = tile % across * kSummedColumns;
    const std::uint64_t begin = part * rows, end = begin + rows < of.count_rows ? begin + rows : of.count_rows;
    if (in_packs)
      sum_tile<kPack, Sum, Own>({}, block, of, sums, first, begin, end, bring, take);
    else
      sum_tile<1, Sum, Own>({}, block, of, sums, first, begin, end, bring, take);
    if (of.parts == 1) {
      with_sums_of_warps(block, of, sums, first, finish);
      continue;
    }
    with_sums_of_warps(block, of, sums, first,
                       [&](std::uint64_t column, const Sum& sum) { partial[part * of.count_columns + column] = sum; });
    if (!block.comes_last(const_cast<StreamState*>(block.at(stream))->arrived + tile % across, of.parts)) continue;
    block.for_each_thread([&](unsigned t) {
      const std::uint64_t column = first + t % kSummedColumns;
      Sum sum{};
      for (std::uint32_t p = t / kSummedColumns; p < of.parts && column < of.count_columns; p += kWarps)
        sum.add(partial[p * of.count_columns + column]);
      sums[t] = sum;
    });
    with_sums_of_warps(block, of, sums, first, finish);
  }
}

/// For each of `count_rows` rows of `width` columns: use(width, found, stored, row, column) for all columns, with what
/// find(sum) makes of the Sum that becomes of what take(own, stored, row, column) made of an empty `own` for all
/// columns. A warp for each row,
/// which brings a short one once, kBrought packs of each thread at a time.
template <unsigned kCount, unsigned kBrought, class Sum, class Own, class Bring, class Take, class Find, class Use>
TROUPE_KERNEL_BODY void with_row_sums_of(Width<kCount> by, const Block& block, std::uint64_t count_rows,
                                         std::uint64_t width, const Bring& bring, const Take& take, const Find& find,
                                         const Use& use) {
  constexpr std::uint64_t kStep = std::uint64_t{kWarpThreads} * kCount;
  struct Brought {
    decltype(bring(by, 0, 0)) of[kBrought];
  };
  const auto bring_some = [&](Brought& found, std::uint64_t row, std::uint64_t column) {
    for (unsigned n = 0; n < kBrought; ++n)
      if (column + n * kStep < width) found.of[n] = bring(by, row, column + n * kStep);
  };
  for (std::uint64_t first = std::uint64_t{block.index()} * kWarps; first < count_rows;
       first += std::uint64_t{block.count()} * kWarps) {
    OfEachThread<Sum> sums;
    OfEachThread<Brought> brought;
    block.for_each_thread([&](unsigned t) {
      const std::uint64_t row = first + t / kWarpThreads;
      Own own{};
      for (std::uint64_t column = t % kWarpThreads * kCount; row < count_rows && column < width;
           column += kBrought * kStep) {
        bring_some(brought[t], row, column);
        for (unsigned n = 0; n < kBrought; ++n)
          if (column + n * kStep < width) take(own, brought[t].of[n], row, column + n * kStep);
      }
      sums[t] = static_cast<Sum>(own);
    });
    block.add_up_warps(sums);
    block.for_each_thread([&](unsigned t) {
      const std::uint64_t row = first + t / kWarpThreads;
      const auto found = find(sums[t]);
      for (std::uint64_t column = t % kWarpThreads * kCount; row < count_rows && column < width;
           column += kBrought * kStep) {
        if (width > kBrought * kStep) bring_some(brought[t], row, column);
        for (unsigned n = 0; n < kBrought; ++n)
          if (column + n * kStep < width) use(by, found, brought[t].of[n], row, column + n * kStep);
      }
    });
  }
}
template <class Sum, class Own, unsigned kBrought = kInFlight, class Bring, class Take, class Find, class Use>
TROUPE_KERNEL_BODY void with_row_sums(const Block& block, std::uint64_t count_rows, std::uint64_t width, bool in_packs,
                                      Bring&& bring, Take&& take, Find&& find, Use&& use) {
  if (in_packs)
    with_row_sums_of<kPack, kBrought, Sum, Own>({}, block, count_rows, width, bring, take, find, use);
  else
    with_row_sums_of<1, kBrought, Sum, Own>({}, block, count_rows, width, bring, take, find, use);
}

/// What find() is where sums are used as they are.
struct AsItIs {
  template <class Sum>
  TROUPE_KERNEL_MEMBER const Sum& operator()(const Sum& sum) const {
    return sum;
  }
};

struct FloatSum {
  float value;
  TROUPE_KERNEL_MEMBER void add(const FloatSum& other) { value += other.value; }
};

/// Of numbers, for a softmax: the sum of exponentials is kept relative to the largest number so far.
struct SoftmaxSums {
  float largest, exponentials;
  std::uint32_t count, reserved;

  /// The first `few` of x, at least one.
  template <unsigned kCount>
  TROUPE_KERNEL_MEMBER void take(const Numbers<kCount>& x, unsigned few) {
    float top = count == 0 ? x.of[0] : largest;
    for (unsigned k = 0; k < kCount; ++k) top = k < few && x.of[k] > top ? x.of[k] : top;
    const auto relative = [top](float one) { return one == top ? 1.0F : ::expf(one - top); };
    float sum = count == 0 ? 0.0F : exponentials * relative(largest);
    for (unsigned k = 0; k < kCount; ++k) sum += k < few ? relative(x.of[k]) : 0.0F;
    exponentials = sum, largest = top, count += few;
  }
  TROUPE_KERNEL_MEMBER void add(const SoftmaxSums& other) {
    if (other.count == 0) return;
    if (count == 0) {
      *this = other;
      return;
    }
    const float top = other.largest > largest ? other.largest : largest;
    const auto relative = [top](const SoftmaxSums& of) {
      return of.largest == top ? of.exponentials : of.exponentials * ::expf(of.largest - top);
    };
    exponentials = relative(*this) + relative(other);
    count += other.count;
    largest = top;
  }
};

/// What a row was normalized by: n = (x - mean) * inverse.
struct RowMoments {
  float mean;
  float inverse;
};

/// Of two tensors at one place, and of their row.
template <unsigned kCount>
struct BroughtPair {
  StoredNumbers<kCount> first, second;
  RowMoments moments;
};

/// Of slopes, and of these times what was normalized.
struct SlopeSums {
  float slopes, by_normal;
  TROUPE_KERNEL_MEMBER void add(const SlopeSums& other) {
    slopes += other.slopes;
    by_normal += other.by_normal;
  }
};

/// Column sums of `from`, and of `from` times the normalized `times`.
struct SumColumnsArgs {
  const StreamState* stream;
  float* to;                  // [count_columns], sums of `from`; null: nobody asks
  float* times_to;            // likewise, of `from` times the normalized `times`
  SlopeSums* partial;         // [parts, count_columns]
  const void* from;           // [count_rows, count_columns]
  const void* times;          // likewise; null: there is none
  const RowMoments* moments;  // [count_rows] of `times`
  ColumnSums sums;
  Stored from_type;
  Stored times_type;
  Factor factor{};  // of both
};
TROUPE_KERNEL_BODY void sum_columns(const Block& block, const SumColumnsArgs& args) {
  const void* const from = block.at(args.from);
  const void* const times = block.at(args.times);
  const RowMoments* const moments = block.at(args.moments);
  float* const to = block.at(args.to);
  float* const times_to = block.at(args.times_to);
  const float factor = value_of(block, args.factor);
  const std::uint64_t columns = args.sums.count_columns;
  sum_columns_in_parts<SlopeSums, SlopeSums>(
      block, args.sums, block.at(args.partial), args.stream,
      has_packs(from, args.from_type, columns) && has_packs(times, args.times_type, columns),
      [&](auto width, std::uint64_t row, std::uint64_t column) {
        const std::uint64_t i = row * columns + column;
        BroughtPair<width.value> found{bring(width, from, args.from_type, i), {}, {}};
        if (times == nullptr) return found;
        found.second = bring(width, times, args.times_type, i);
        found.moments = moments[row];
        return found;
      },
      [&](auto& own, const auto& brought, std::uint64_t, std::uint64_t) {
        const auto x = widened(brought.first, args.from_type), y = widened(brought.second, args.times_type);
        for (unsigned k = 0; k < sizeof own / sizeof own[0]; ++k)
          own[k].add({x.of[k], x.of[k] * ((y.of[k] - brought.moments.mean) * brought.moments.inverse)});
      },
      [&](std::uint64_t column, const SlopeSums& sum) {
        if (to != nullptr) to[column] = sum.slopes * factor;
        if (times_to != nullptr) times_to[column] = sum.by_normal * factor;
      });
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const SumColumnsArgs& args) {
  const std::uint64_t count = args.sums.count_rows * args.sums.count_columns;
  touched.reads(args.from, count * bytes_of(args.from_type));
  touched.reads(args.times, count * bytes_of(args.times_type));
  touched.reads(args.moments, args.sums.count_rows * sizeof(RowMoments));
  touched.reads(args.factor.at, sizeof(float));
  if (args.sums.parts > 1) touched.writes(args.partial, args.sums.parts * args.sums.count_columns * sizeof(SlopeSums));
  touched.writes(args.to, args.sums.count_columns * sizeof(float));
  touched.writes(args.times_to, args.sums.count_columns * sizeof(float));
}
#endif

}  // namespace troupe::cuda
