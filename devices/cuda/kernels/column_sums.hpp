#pragma once

#include "devices/cuda/kernels/numbers.hpp"

// Sums over the rows of a matrix, and over its columns. Which thread adds up what depends on the extents alone, so sums
// have one order.
namespace troupe::cuda {

/// 32 columns at a time, so that neighbours in memory are read by neighbouring threads, by 8 threads each.
inline constexpr unsigned kSummedColumns = 32, kSummingThreads = kBlockThreads / kSummedColumns;

struct ColumnSums {
  std::uint64_t count_rows, count_columns;
  std::uint32_t parts;  // that the rows are cut into
  std::uint32_t reserved;
};
constexpr std::uint64_t count_tiles(const ColumnSums& of) noexcept {
  return (of.count_columns + kSummedColumns - 1) / kSummedColumns * of.parts;
}

/// partial[part, column] = what take(sum, row, column) makes of an empty sum for each row of the part, in rows' order
/// for each thread; threads' sums are joined by Sum::add.
template <class Sum, class Take>
TROUPE_KERNEL_BODY void sum_columns_in_parts(const Block& block, const ColumnSums& of, Sum* partial, Take&& take) {
  Sum* const sums = block.shared<Sum, kBlockThreads>();
  const std::uint64_t across = (of.count_columns + kSummedColumns - 1) / kSummedColumns;
  const std::uint64_t rows = (of.count_rows + of.parts - 1) / of.parts;
  for (std::uint64_t tile = block.index(); tile < across * of.parts; tile += block.count()) {
    const std::uint64_t part = tile / across, first = tile % across * kSummedColumns;
    const std::uint64_t end = (part + 1) * rows < of.count_rows ? (part + 1) * rows : of.count_rows;
    block.for_each_thread([&](unsigned t) {
      const std::uint64_t column = first + t % kSummedColumns;
      Sum sum{};
      if (column < of.count_columns) {
        for (std::uint64_t row = part * rows + t / kSummedColumns; row < end; row += kSummingThreads)
          take(sum, row, column);
      }
      sums[t] = sum;
    });
    block.barrier();
    block.for_each_thread([&](unsigned t) {
      if (t >= kSummedColumns || first + t >= of.count_columns) return;
      Sum sum = sums[t];
      for (unsigned other = 1; other < kSummingThreads; ++other) sum.add(sums[other * kSummedColumns + t]);
      partial[part * of.count_columns + first + t] = sum;
    });
    block.barrier();
  }
}
/// Of one column, over all parts.
template <class Sum>
TROUPE_KERNEL_BODY Sum sum_of_parts(const ColumnSums& of, const Sum* partial, std::uint64_t column) {
  Sum sum = partial[column];
  for (std::uint32_t part = 1; part < of.parts; ++part) sum.add(partial[part * of.count_columns + column]);
  return sum;
}

/// For each of `count_rows` rows of `width` columns: use(sum, row, column) for all columns, with what take(sum, row,
/// column) made of an empty sum for all columns. 32 threads for each row.
template <class Sum, class Take, class Use>
TROUPE_KERNEL_BODY void with_row_sums(const Block& block, std::uint64_t count_rows, std::uint64_t width, Take&& take,
                                      Use&& use) {
  constexpr unsigned kRows = kSummingThreads, kThreads = kSummedColumns;
  Sum* const sums = block.shared<Sum, kBlockThreads>();
  for (std::uint64_t first = std::uint64_t{block.index()} * kRows; first < count_rows;
       first += std::uint64_t{block.count()} * kRows) {
    block.for_each_thread([&](unsigned t) {
      const std::uint64_t row = first + t / kThreads;
      Sum sum{};
      for (std::uint64_t column = t % kThreads; row < count_rows && column < width; column += kThreads)
        take(sum, row, column);
      sums[t] = sum;
    });
    block.barrier();
    block.for_each_thread([&](unsigned t) {
      const std::uint64_t row = first + t / kThreads;
      if (row >= count_rows || t % kThreads >= width) return;
      Sum sum = sums[t / kThreads * kThreads];
      for (unsigned other = 1; other < kThreads; ++other) sum.add(sums[t / kThreads * kThreads + other]);
      for (std::uint64_t column = t % kThreads; column < width; column += kThreads) use(sum, row, column);
    });
    block.barrier();
  }
}

struct FloatSum {
  float value;
  TROUPE_KERNEL_MEMBER void add(const FloatSum& other) { value += other.value; }
};

/// Of numbers, for a softmax: the sum of exponentials is kept relative to the largest number so far.
struct SoftmaxSums {
  float largest, exponentials;
  std::uint32_t count, reserved;

  TROUPE_KERNEL_MEMBER void take(float x) { add({x, 1.0F, 1, 0}); }
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

/// Column sums of `from`, or of `from` times the normalized `times`, in parts, for add_parts.
struct SumColumnsArgs {
  const StreamState* stream;
  float* partial;             // [parts, count_columns]
  const void* from;           // [count_rows, count_columns]
  const void* times;          // likewise; null: there is none
  const RowMoments* moments;  // [count_rows] of `times`
  ColumnSums sums;
  Stored from_type;
  Stored times_type;
};
TROUPE_KERNEL_BODY void sum_columns(const Block& block, const SumColumnsArgs& args) {
  const void* const from = block.at(args.from);
  const void* const times = block.at(args.times);
  const RowMoments* const moments = block.at(args.moments);
  sum_columns_in_parts(block, args.sums, reinterpret_cast<FloatSum*>(block.at(args.partial)),
                       [&](FloatSum& sum, std::uint64_t row, std::uint64_t column) {
                         const std::uint64_t i = row * args.sums.count_columns + column;
                         float value = load(from, args.from_type, i);
                         if (times != nullptr)
                           value *= (load(times, args.times_type, i) - moments[row].mean) * moments[row].inverse;
                         sum.value += value;
                       });
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const SumColumnsArgs& args) {
  const std::uint64_t count = args.sums.count_rows * args.sums.count_columns;
  touched.reads(args.from, count * bytes_of(args.from_type));
  touched.reads(args.times, count * bytes_of(args.times_type));
  touched.reads(args.moments, args.sums.count_rows * sizeof(RowMoments));
  touched.writes(args.partial, args.sums.parts * args.sums.count_columns * sizeof(float));
}
#endif

}  // namespace troupe::cuda
