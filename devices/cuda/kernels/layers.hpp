#pragma once

#include "devices/cuda/kernels/points.hpp"
#include "devices/cuda/kernels/sums.hpp"

// What dense graphs consist of. Matrices are row-major, sums in f32 and in one order.
namespace troupe::cuda {

/// Brings rows of a batch, whose place changes from step to step, to where a step works on them.
struct BatchPlace {
  const std::byte* from = nullptr;
};
struct TakeBatchArgs {
  const StreamState* stream;
  std::byte* to;
  std::uint64_t offset;  // from the batch's start
  std::uint64_t size_bytes;
  Given<BatchPlace> given;
};
TROUPE_KERNEL_BODY void take_batch(const Block& block, const TakeBatchArgs& args) {
  auto* const to = reinterpret_cast<std::uint16_t*>(block.at(args.to));
  const auto* const from =
      reinterpret_cast<const std::uint16_t*>(block.at(block.values(args.given).from) + args.offset);
  block.for_each(args.size_bytes / sizeof *to, [&](std::uint64_t i) { to[i] = from[i]; });
}

/// to[i, j] = bias[j] + the sum over k of a[i, k] b[k, j], each matrix by its strides: element (r, c) is at r * rows +
/// c * columns.
struct Matrix {
  const void* at;
  std::uint64_t rows;     // elements from one row to the next
  std::uint64_t columns;  // likewise
  Stored type;
  std::uint32_t reserved;
};
struct MultiplyArgs {
  const StreamState* stream;
  void* to;           // [count_rows, count_columns]
  const float* bias;  // null: none
  Matrix a;
  Matrix b;
  std::uint64_t count_rows;
  std::uint64_t count_columns;
  std::uint64_t count_inner;
  Stored to_type;
  std::uint32_t reserved;
};

inline constexpr unsigned kTile = 16;
static_assert(kTile * kTile == kBlockThreads);

TROUPE_KERNEL_BODY float element(const void* at, const Matrix& of, std::uint64_t row, std::uint64_t column) {
  return load(at, of.type, row * of.rows + column * of.columns);
}

/// A block of threads computes a tile of 16 by 16 at a time, over stretches of 16 of the inner extent.
TROUPE_KERNEL_BODY void multiply(const Block& block, const MultiplyArgs& args) {
  float* const left = block.shared<float, 3 * kBlockThreads>();
  float* const right = left + kBlockThreads;
  float* const sums = right + kBlockThreads;
  const void* const a = block.at(args.a.at);
  const void* const b = block.at(args.b.at);
  void* const to = block.at(args.to);
  const float* const bias = block.at(args.bias);
  const std::uint64_t across = (args.count_columns + kTile - 1) / kTile;
  const std::uint64_t tiles = across * ((args.count_rows + kTile - 1) / kTile);
  for (std::uint64_t tile = block.index(); tile < tiles; tile += block.count()) {
    const std::uint64_t first_row = tile / across * kTile, first_column = tile % across * kTile;
    block.for_each_here(kBlockThreads, [&](std::uint64_t t) { sums[t] = 0; });
    for (std::uint64_t k = 0; k < args.count_inner; k += kTile) {
      block.for_each_here(kBlockThreads, [&](std::uint64_t t) {
        const std::uint64_t y = t / kTile, x = t % kTile;
        const bool has_left = first_row + y < args.count_rows && k + x < args.count_inner;
        const bool has_right = first_column + x < args.count_columns && k + y < args.count_inner;
        left[t] = has_left ? element(a, args.a, first_row + y, k + x) : 0.0F;
        right[t] = has_right ? element(b, args.b, k + y, first_column + x) : 0.0F;
      });
      block.barrier();
      const unsigned inner = args.count_inner - k < kTile ? static_cast<unsigned>(args.count_inner - k) : kTile;
      block.for_each_here(kBlockThreads, [&](std::uint64_t t) {
        float sum = sums[t];
        for (unsigned i = 0; i < inner; ++i) sum += left[t / kTile * kTile + i] * right[i * kTile + t % kTile];
        sums[t] = sum;
      });
      block.barrier();
    }
    block.for_each_here(kBlockThreads, [&](std::uint64_t t) {
      const std::uint64_t row = first_row + t / kTile, column = first_column + t % kTile;
      if (row >= args.count_rows || column >= args.count_columns) return;
      store(to, args.to_type, row * args.count_columns + column, bias ? sums[t] + bias[column] : sums[t]);
    });
    block.barrier();
  }
}

/// to[j] = the sum of column j of `from` [count_rows, count_columns].
struct SumRowsArgs {
  const StreamState* stream;
  float* to;
  const void* from;
  std::uint64_t count_rows;
  std::uint64_t count_columns;
  Stored from_type;
  std::uint32_t reserved;
};
TROUPE_KERNEL_BODY void sum_rows(const Block& block, const SumRowsArgs& args) {
  float* const to = block.at(args.to);
  const void* const from = block.at(args.from);
  block.for_each(args.count_columns, [&](std::uint64_t column) {
    float sum = 0;
    for (std::uint64_t row = 0; row < args.count_rows; ++row)
      sum += load(from, args.from_type, row * args.count_columns + column);
    to[column] = sum;
  });
}

enum class Curve : std::uint32_t { relu, tanh, sigmoid, gelu };

struct ActivateArgs {
  const StreamState* stream;
  void* to;
  const void* from;
  std::uint64_t count;
  Curve curve;
  Stored to_type;
  Stored from_type;
  std::uint32_t reserved;
};

TROUPE_KERNEL_BODY float value_of(Curve curve, float x) {
  switch (curve) {
    case Curve::relu: return x > 0 ? x : 0.0F;
    case Curve::tanh: return ::tanhf(x);
    case Curve::sigmoid: return 1 / (1 + ::expf(-x));
    case Curve::gelu: return x * 0.5F * ::erfcf(-x * 0.70710678F);
  }
  return x;
}
TROUPE_KERNEL_BODY void activate(const Block& block, const ActivateArgs& args) {
  void* const to = block.at(args.to);
  const void* const from = block.at(args.from);
  block.for_each(args.count, [&](std::uint64_t i) {
    store(to, args.to_type, i, value_of(args.curve, load(from, args.from_type, i)));
  });
}

struct ActivateBackArgs {
  const StreamState* stream;
  void* gradient;    // multiplied by the slope in place
  const void* kept;  // what the curve put out; for gelu, what it read
  std::uint64_t count;
  Curve curve;
  Stored gradient_type;
  Stored kept_type;
  std::uint32_t reserved;
};

TROUPE_KERNEL_BODY float slope_of(Curve curve, float kept) {
  switch (curve) {
    case Curve::relu: return kept > 0 ? 1.0F : 0.0F;
    case Curve::tanh: return 1 - kept * kept;
    case Curve::sigmoid: return kept * (1 - kept);
    case Curve::gelu: return 0.5F * ::erfcf(-kept * 0.70710678F) + kept * 0.39894228F * ::expf(-0.5F * kept * kept);
  }
  return 1;
}
TROUPE_KERNEL_BODY void activate_back(const Block& block, const ActivateBackArgs& args) {
  void* const gradient = block.at(args.gradient);
  const void* const kept = block.at(args.kept);
  block.for_each(args.count, [&](std::uint64_t i) {
    const float slope = slope_of(args.curve, load(kept, args.kept_type, i));
    const float before = load(gradient, args.gradient_type, i);
    store(gradient, args.gradient_type, i, slope == 0 ? 0.0F : before * slope);
  });
}

/// What one row adds to a step's sums.
struct RowLoss {
  double loss;
  std::uint32_t counts;
  std::uint32_t correct;
};

struct CrossEntropyArgs {
  StreamState* stream;
  StreamReport* report;
  RowLoss* rows;               // [count_rows]
  void* gradient;              // [count_rows, classes]; null: none is wanted
  const void* logits;          // [count_rows, classes]
  const std::int32_t* labels;  // [count_rows]
  std::uint64_t count_rows;
  std::uint32_t classes;
  std::int32_t ignore;
  float weight;
  float smoothing;
  Stored gradient_type;
  Stored logits_type;
};

TROUPE_KERNEL_BODY RowLoss row_loss(const CrossEntropyArgs& args, const void* logits, void* gradient, std::uint64_t row,
                                    std::uint32_t label) {
  const std::uint64_t first = row * args.classes;
  const auto logit = [&](std::uint32_t k) { return load(logits, args.logits_type, first + k); };
  std::uint32_t best = 0;
  double all = 0;
  for (std::uint32_t k = 0; k < args.classes; ++k) {
    if (logit(k) > logit(best)) best = k;
    all += static_cast<double>(logit(k));
  }
  const float largest = logit(best);
  float sum = 0;
  for (std::uint32_t k = 0; k < args.classes; ++k) sum += ::expf(logit(k) - largest);
  const auto of_label = static_cast<double>(logit(label));
  double target = of_label;
  if (args.smoothing != 0) target += static_cast<double>(args.smoothing) * (all / args.classes - of_label);
  const float shared = args.smoothing / static_cast<float>(args.classes), own = 1.0F - args.smoothing;
  for (std::uint32_t k = 0; gradient && k < args.classes; ++k) {
    const float slope = ::expf(logit(k) - largest) * (1.0F / sum) - shared - (k == label ? own : 0.0F);
    store(gradient, args.gradient_type, first + k, slope * args.weight);
  }
  const double loss = ::log(static_cast<double>(sum)) + (static_cast<double>(largest) - target);
  return {loss, 1, best == label ? 1U : 0U};
}

/// A thread for each row.
TROUPE_KERNEL_BODY void cross_entropy(const Block& block, const CrossEntropyArgs& args) {
  RowLoss* const rows = block.at(args.rows);
  void* const gradient = block.at(args.gradient);
  const void* const logits = block.at(args.logits);
  const std::int32_t* const labels = block.at(args.labels);
  block.for_each(args.count_rows, [&](std::uint64_t row) {
    const std::int32_t label = labels[row];
    const bool is_wrong = label >= 0 && label != args.ignore && static_cast<std::uint32_t>(label) >= args.classes;
    if (is_wrong)
      end_stream(block, args.stream, args.report, StreamFault::bad_label, static_cast<std::uint64_t>(label), row);
    if (is_wrong || label < 0 || label == args.ignore) {
      rows[row] = {};
      for (std::uint32_t k = 0; gradient && k < args.classes; ++k)
        store(gradient, args.gradient_type, row * args.classes + k, 0.0F);
      return;
    }
    rows[row] = row_loss(args, logits, gradient, row, static_cast<std::uint32_t>(label));
  });
}

struct SumLossesArgs {
  const StreamState* stream;
  const RowLoss* rows;
  std::uint64_t count_rows;
  double weight;
  std::uint64_t adds;  // to what stands in the sums; 0: it is overwritten
  Given<SumsPlace> given;
};

/// One block.
TROUPE_KERNEL_BODY void sum_losses(const Block& block, const SumLossesArgs& args) {
  const RowLoss* const rows = block.at(args.rows);
  RowLoss* const partial = block.shared<RowLoss, kBlockThreads>();
  block.for_each_here(kBlockThreads, [&](std::uint64_t thread) {
    RowLoss sum{};
    for (std::uint64_t row = thread; row < args.count_rows; row += kBlockThreads) {
      sum.loss += rows[row].loss;
      sum.counts += rows[row].counts;
      sum.correct += rows[row].correct;
    }
    partial[thread] = sum;
  });
  block.barrier();
  block.once([&] {
    RowLoss sum{};
    std::uint64_t counts = 0, correct = 0;
    for (unsigned thread = 0; thread < kBlockThreads; ++thread) {
      sum.loss += partial[thread].loss;
      counts += partial[thread].counts;
      correct += partial[thread].correct;
    }
    StepSums* const sums = block.at(block.values(args.given).sums);
    sums->loss = (args.adds != 0 ? sums->loss : 0) + sum.loss * args.weight;
    sums->correct = (args.adds != 0 ? sums->correct : 0) + correct;
    sums->samples = (args.adds != 0 ? sums->samples : 0) + counts;
  });
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const TakeBatchArgs& args) {
  touched.reads(touched.values(args.given).from + args.offset, args.size_bytes);
  touched.writes(args.to, args.size_bytes);
}
inline void declare(Accesses& touched, const MultiplyArgs& args) {
  const auto extent = [&](const Matrix& of, std::uint64_t rows, std::uint64_t columns) {
    return rows == 0 || columns == 0 ? 0 : ((rows - 1) * of.rows + (columns - 1) * of.columns + 1) * bytes_of(of.type);
  };
  touched.reads(args.a.at, extent(args.a, args.count_rows, args.count_inner));
  touched.reads(args.b.at, extent(args.b, args.count_inner, args.count_columns));
  touched.reads(args.bias, args.count_columns * sizeof(float));
  touched.writes(args.to, args.count_rows * args.count_columns * bytes_of(args.to_type));
}
inline void declare(Accesses& touched, const SumRowsArgs& args) {
  touched.reads(args.from, args.count_rows * args.count_columns * bytes_of(args.from_type));
  touched.writes(args.to, args.count_columns * sizeof(float));
}
inline void declare(Accesses& touched, const ActivateArgs& args) {
  touched.reads(args.from, args.count * bytes_of(args.from_type));
  touched.writes(args.to, args.count * bytes_of(args.to_type));
}
inline void declare(Accesses& touched, const ActivateBackArgs& args) {
  touched.reads(args.kept, args.count * bytes_of(args.kept_type));
  touched.writes(args.gradient, args.count * bytes_of(args.gradient_type));
}
inline void declare(Accesses& touched, const CrossEntropyArgs& args) {
  touched.reads(args.logits, args.count_rows * args.classes * bytes_of(args.logits_type));
  touched.reads(args.labels, args.count_rows * sizeof(std::int32_t));
  touched.writes(args.stream, sizeof *args.stream);
  touched.writes(args.report, sizeof *args.report);
  touched.writes(args.rows, args.count_rows * sizeof(RowLoss));
  touched.writes(args.gradient, args.count_rows * args.classes * bytes_of(args.gradient_type));
}
inline void declare(Accesses& touched, const SumLossesArgs& args) {
  touched.reads(args.rows, args.count_rows * sizeof(RowLoss));
  touched.writes(touched.values(args.given).sums, sizeof(StepSums));
}
#endif

}  // namespace troupe::cuda
