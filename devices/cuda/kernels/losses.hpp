#pragma once

#include "devices/cuda/kernels/column_sums.hpp"
#include "devices/cuda/kernels/elements.hpp"
#include "devices/cuda/kernels/points.hpp"
#include "devices/cuda/kernels/sums.hpp"

// Losses with their gradients: 32 threads for each row.
namespace troupe::cuda {

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
  GradientTo gradient;         // [count_rows, classes]; at null: none is wanted
  const void* logits;          // [count_rows, classes]
  const std::int32_t* labels;  // [count_rows]
  std::uint64_t count_rows;
  std::uint32_t classes;
  std::int32_t ignore;
  float weight;
  float smoothing;
  Stored logits_type;
  std::uint32_t reserved;
  Factor factor{};  // of the gradient
};

/// Of a row of logits.
struct LogitSums {
  SoftmaxSums softmax;
  double all;
  std::uint32_t best, reserved;  // the first one of the largest

  TROUPE_KERNEL_MEMBER void take(float x, std::uint32_t at) { add({{x, 1.0F, 1, 0}, static_cast<double>(x), at, 0}); }
  TROUPE_KERNEL_MEMBER void add(const LogitSums& other) {
    if (other.softmax.count == 0) return;
    const float largest = softmax.largest, others = other.softmax.largest;
    if (softmax.count == 0 || others > largest || (others == largest && other.best < best)) best = other.best;
    softmax.add(other.softmax);
    all += other.all;
  }
};

TROUPE_KERNEL_BODY RowLoss row_loss(const CrossEntropyArgs& args, const LogitSums& sums, float logit,
                                    std::uint32_t label) {
  const auto of_label = static_cast<double>(logit);
  double target = of_label;
  if (args.smoothing != 0) target += static_cast<double>(args.smoothing) * (sums.all / args.classes - of_label);
  const double loss =
      ::log(static_cast<double>(sums.softmax.exponentials)) + (static_cast<double>(sums.softmax.largest) - target);
  return {loss, 1, sums.best == label ? 1U : 0U};
}

TROUPE_KERNEL_BODY void cross_entropy(const Block& block, const CrossEntropyArgs& args) {
  RowLoss* const rows = block.at(args.rows);
  void* const gradient = block.at(args.gradient.at);
  const void* const logits = block.at(args.logits);
  const std::int32_t* const labels = block.at(args.labels);
  const float weight = args.weight * value_of(block, args.factor);
  const auto logit = [&](std::uint64_t row, std::uint64_t k) {
    return load(logits, args.logits_type, row * args.classes + k);
  };
  with_row_sums<LogitSums>(
      block, args.count_rows, args.classes,
      [&](LogitSums& sums, std::uint64_t row, std::uint64_t k) {
        sums.take(logit(row, k), static_cast<std::uint32_t>(k));
      },
      [&](const LogitSums& sums, std::uint64_t row, std::uint64_t k) {
        const std::int32_t label = labels[row];
        const bool counts = label >= 0 && label != args.ignore;
        const bool is_class = counts && static_cast<std::uint32_t>(label) < args.classes;
        if (k == 0) {
          if (counts && !is_class)
            end_stream(block, args.stream, args.report, StreamFault::bad_label, static_cast<std::uint64_t>(label), row);
          rows[row] = is_class ? row_loss(args, sums, logit(row, static_cast<std::uint64_t>(label)),
                                          static_cast<std::uint32_t>(label))
                               : RowLoss{};
        }
        if (gradient == nullptr) return;
        float slope = 0;
        if (is_class) {
          const float shared = args.smoothing / static_cast<float>(args.classes), own = 1.0F - args.smoothing;
          slope = ::expf(logit(row, k) - sums.softmax.largest) * (1.0F / sums.softmax.exponentials) - shared -
                  (k == static_cast<std::uint64_t>(label) ? own : 0.0F);
        }
        put_gradient(args.gradient, gradient, row * args.classes + k, slope * weight);
      });
}

/// A loss of numbers and as many targets.
struct NumberLossArgs {
  StreamState* stream;
  StreamReport* report;
  RowLoss* rows;        // [count_rows]
  GradientTo gradient;  // [count_rows, width]; at null: none is wanted
  const void* numbers;  // [count_rows, width]
  const void* targets;  // likewise
  std::uint64_t count_rows;
  std::uint64_t width;
  float weight;
  float beta;  // of smooth_l1; 0: sigmoid_cross_entropy
  Stored numbers_type;
  Stored targets_type;
  Factor factor{};  // of the gradient
};

struct NumberLossSums {
  double loss;
  std::uint32_t counts, wrong, bad, reserved;
  TROUPE_KERNEL_MEMBER void add(const NumberLossSums& other) {
    loss += other.loss;
    counts += other.counts;
    wrong += other.wrong;
    bad += other.bad;
  }
};

/// The form of the sigmoid cross entropy that overflows for no x.
TROUPE_KERNEL_BODY void take_number(const NumberLossArgs& args, NumberLossSums& sums, float x, float target) {
  if (args.beta != 0) {
    const float d = x - target, size = ::fabsf(d);
    sums.loss += static_cast<double>(size < args.beta ? d * d / (2 * args.beta) : size - args.beta / 2);
    sums.counts += 1;
    sums.wrong += 1;  // a row never counts as correct
    return;
  }
  if (target > 1) sums.bad += 1;
  if (target < 0) return;
  sums.loss += static_cast<double>((x > 0 ? x : 0.0F) - x * target + ::log1pf(::expf(-::fabsf(x))));
  sums.counts += 1;
  sums.wrong += (x > 0) == (target > 0.5F) ? 0 : 1;
}
TROUPE_KERNEL_BODY float slope_of_number(const NumberLossArgs& args, float x, float target) {
  if (args.beta == 0) return target < 0 ? 0.0F : 1 / (1 + ::expf(-x)) - target;
  const float d = x - target;
  return ::fabsf(d) < args.beta ? d / args.beta : d > 0 ? 1.0F : -1.0F;
}

TROUPE_KERNEL_BODY void number_loss(const Block& block, const NumberLossArgs& args) {
  RowLoss* const rows = block.at(args.rows);
  void* const gradient = block.at(args.gradient.at);
  const void* const numbers = block.at(args.numbers);
  const void* const targets = block.at(args.targets);
  const float weight = args.weight * value_of(block, args.factor);
  const auto number = [&](std::uint64_t i) { return load(numbers, args.numbers_type, i); };
  const auto target = [&](std::uint64_t i) { return load(targets, args.targets_type, i); };
  with_row_sums<NumberLossSums>(
      block, args.count_rows, args.width,
      [&](NumberLossSums& sums, std::uint64_t row, std::uint64_t k) {
        const std::uint64_t i = row * args.width + k;
        take_number(args, sums, number(i), target(i));
      },
      [&](const NumberLossSums& sums, std::uint64_t row, std::uint64_t k) {
        const std::uint64_t i = row * args.width + k;
        const auto count = static_cast<float>(sums.counts);
        if (k == 0) {
          if (sums.bad != 0) end_stream(block, args.stream, args.report, StreamFault::bad_target, sums.bad, row);
          rows[row] = sums.counts == 0 ? RowLoss{}
                                       : RowLoss{sums.loss / static_cast<double>(count), 1, sums.wrong == 0 ? 1U : 0U};
        }
        if (gradient == nullptr) return;
        const float slope = sums.counts == 0 ? 0.0F : slope_of_number(args, number(i), target(i)) / count;
        put_gradient(args.gradient, gradient, i, slope * weight);
      });
}

struct SumLossesArgs {
  const StreamState* stream;
  const RowLoss* rows;
  std::uint64_t* samples;  // that count, for layers behind; null: nobody asks
  std::uint64_t count_rows;
  double weight;
  std::uint32_t adds;    // to what stands in the sums; 0: it is overwritten
  std::uint32_t counts;  // whether its rows are the step's samples
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
      counts += args.counts != 0 ? partial[thread].counts : 0;
      correct += args.counts != 0 ? partial[thread].correct : 0;
    }
    StepSums* const sums = block.at(block.values(args.given).sums);
    sums->loss = (args.adds != 0 ? sums->loss : 0) + sum.loss * args.weight;
    sums->correct = (args.adds != 0 ? sums->correct : 0) + correct;
    sums->samples = (args.adds != 0 ? sums->samples : 0) + counts;
    if (args.samples != nullptr) *block.at(args.samples) = counts;
  });
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const CrossEntropyArgs& args) {
  touched.reads(args.logits, args.count_rows * args.classes * bytes_of(args.logits_type));
  touched.reads(args.labels, args.count_rows * sizeof(std::int32_t));
  touched.reads(args.factor.at, sizeof(float));
  declare_end(touched, args.stream, args.report);
  touched.writes(args.rows, args.count_rows * sizeof(RowLoss));
  touched.writes(args.gradient.at, args.count_rows * args.classes * bytes_of(args.gradient.type));
}
inline void declare(Accesses& touched, const NumberLossArgs& args) {
  touched.reads(args.numbers, args.count_rows * args.width * bytes_of(args.numbers_type));
  touched.reads(args.targets, args.count_rows * args.width * bytes_of(args.targets_type));
  touched.reads(args.factor.at, sizeof(float));
  declare_end(touched, args.stream, args.report);
  touched.writes(args.rows, args.count_rows * sizeof(RowLoss));
  touched.writes(args.gradient.at, args.count_rows * args.width * bytes_of(args.gradient.type));
}
inline void declare(Accesses& touched, const SumLossesArgs& args) {
  touched.reads(args.rows, args.count_rows * sizeof(RowLoss));
  touched.writes(args.samples, sizeof *args.samples);
  touched.writes(touched.values(args.given).sums, sizeof(StepSums));
}
#endif

}  // namespace troupe::cuda
