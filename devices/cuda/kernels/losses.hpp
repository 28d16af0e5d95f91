#pragma once

#include "devices/cuda/kernels/column_sums.hpp"
#include "devices/cuda/kernels/elements.hpp"
#include "devices/cuda/kernels/points.hpp"
#include "devices/cuda/kernels/sums.hpp"

// Losses with their gradients: a warp for each row. The last block adds all rows up.
namespace troupe::cuda {

/// What one row adds to a step's sums.
struct RowLoss {
  double loss;
  std::uint32_t counts;
  std::uint32_t correct;

  TROUPE_KERNEL_MEMBER void add(const RowLoss& other) {
    loss += other.loss;
    counts += other.counts;
    correct += other.correct;
  }
};

/// Where the sums of rows go.
struct LossTotal {
  std::uint64_t* samples;  // that count, for layers behind; null: nobody asks
  double weight;
  std::uint32_t adds;    // to what stands in the sums; 0: it is overwritten
  std::uint32_t counts;  // whether its rows are the step's samples
};

/// By the last block, once all rows are there. A row that ends the stream leaves the sums as they are.
template <class Args>
TROUPE_KERNEL_BODY void finish_losses(const Block& block, const Args& args) {
  StreamState* const stream = block.at(args.stream);
  if (!block.comes_last(stream->arrived, block.count())) return;
  const RowLoss* const rows = block.at(args.rows);
  OfEachThread<RowLoss> found;
  block.for_each_thread([&](unsigned t) {
    RowLoss sum{};
    for (std::uint64_t row = t; row < args.count_rows; row += kBlockThreads) sum.add(rows[row]);
    found[t] = sum;
  });
  block.add_up_warps(found);
  RowLoss* const partial = block.shared<RowLoss, kWarps>();
  block.for_each_thread([&](unsigned t) {
    if (t % kWarpThreads == 0) partial[t / kWarpThreads] = found[t];
  });
  block.barrier();
  block.once([&] {
    if (Block::glance(&stream->failed) != 0) return;
    RowLoss sum = partial[0];
    for (unsigned warp = 1; warp < kWarps; ++warp) sum.add(partial[warp]);
    const LossTotal& total = args.total;
    const std::uint64_t counts = total.counts != 0 ? sum.counts : 0, correct = total.counts != 0 ? sum.correct : 0;
    StepSums* const sums = block.at(block.values(args.given).sums);
    sums->loss = (total.adds != 0 ? sums->loss : 0) + sum.loss * total.weight;
    sums->correct = (total.adds != 0 ? sums->correct : 0) + correct;
    sums->samples = (total.adds != 0 ? sums->samples : 0) + counts;
    if (total.samples != nullptr) *block.at(total.samples) = counts;
  });
}

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
  LossTotal total;
  Given<SumsPlace> given;
};

/// Of a row of logits.
struct LogitSums {
  SoftmaxSums softmax;
  double all;
  std::uint32_t best;  // the first one of the largest
  float largest;       // of those that take() has seen

  template <unsigned kCount>
  TROUPE_KERNEL_MEMBER void take(const Numbers<kCount>& x, std::uint32_t at) {
    for (unsigned k = 0; k < kCount; ++k) {
      if (softmax.count + k == 0 || x.of[k] > largest) best = at + k, largest = x.of[k];
      all += static_cast<double>(x.of[k]);
    }
    softmax.take(x, kCount);
  }
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
  const bool in_packs = has_packs(logits, args.logits_type, args.classes) && is_in_packs(gradient, args.gradient.type);
  with_row_sums<LogitSums, LogitSums, 1>(
      block, args.count_rows, args.classes, in_packs,
      [&](auto width, std::uint64_t row, std::uint64_t k) {
        return bring(width, logits, args.logits_type, row * args.classes + k);
      },
      [&](LogitSums& own, const auto& brought, std::uint64_t, std::uint64_t k) {
        own.take(widened(brought, args.logits_type), static_cast<std::uint32_t>(k));
      },
      AsItIs{},
      [&](auto width, const LogitSums& sums, const auto& brought, std::uint64_t row, std::uint64_t k) {
        const std::int32_t label = labels[row];
        const bool counts = label >= 0 && label != args.ignore;
        const bool is_class = counts && static_cast<std::uint32_t>(label) < args.classes;
        if (k == 0) {
          if (counts && !is_class)
            end_stream(block, args.stream, args.report, StreamFault::bad_label, static_cast<std::uint64_t>(label), row);
          const auto of_label = [&] {
            return load(logits, args.logits_type, row * args.classes + static_cast<std::uint64_t>(label));
          };
          rows[row] = is_class ? row_loss(args, sums, of_label(), static_cast<std::uint32_t>(label)) : RowLoss{};
        }
        if (gradient == nullptr) return;
        auto slopes = widened(brought, args.logits_type);
        const float shared = args.smoothing / static_cast<float>(args.classes), own = 1.0F - args.smoothing;
        const float inverse = 1.0F / sums.softmax.exponentials;
        for (unsigned j = 0; j < width(); ++j) {
          const float slope = ::expf(slopes.of[j] - sums.softmax.largest) * inverse - shared -
                              (k + j == static_cast<std::uint64_t>(label) ? own : 0.0F);
          slopes.of[j] = is_class ? slope * weight : 0.0F;
        }
        put_gradient(width, args.gradient, gradient, row * args.classes + k, slopes);
      });
  finish_losses(block, args);
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
  LossTotal total;
  Given<SumsPlace> given;
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
  with_row_sums<NumberLossSums, NumberLossSums, 1>(
      block, args.count_rows, args.width, /*in_packs=*/false,
      [&](auto width, std::uint64_t row, std::uint64_t k) {
        const std::uint64_t i = row * args.width + k;
        return BroughtPair<width.value>{
            bring(width, numbers, args.numbers_type, i), bring(width, targets, args.targets_type, i), {}};
      },
      [&](NumberLossSums& own, const auto& brought, std::uint64_t, std::uint64_t) {
        take_number(args, own, widened(brought.first, args.numbers_type).of[0],
                    widened(brought.second, args.targets_type).of[0]);
      },
      AsItIs{},
      [&](auto, const NumberLossSums& sums, const auto& brought, std::uint64_t row, std::uint64_t k) {
        const auto count = static_cast<float>(sums.counts);
        if (k == 0) {
          if (sums.bad != 0) end_stream(block, args.stream, args.report, StreamFault::bad_target, sums.bad, row);
          rows[row] = sums.counts == 0 ? RowLoss{}
                                       : RowLoss{sums.loss / static_cast<double>(count), 1, sums.wrong == 0 ? 1U : 0U};
        }
        if (gradient == nullptr) return;
        const float number = widened(brought.first, args.numbers_type).of[0];
        const float target = widened(brought.second, args.targets_type).of[0];
        const float slope = sums.counts == 0 ? 0.0F : slope_of_number(args, number, target) / count;
        put_gradient(Width<1>{}, args.gradient, gradient, row * args.width + k, Numbers<1>{{slope * weight}});
      });
  finish_losses(block, args);
}

/// The sums of a step without rows.
struct NoLossArgs {
  const StreamState* stream;
  Given<SumsPlace> given;
};
TROUPE_KERNEL_BODY void no_loss(const Block& block, const NoLossArgs& args) {
  block.once([&] {
    StepSums* const sums = block.at(block.values(args.given).sums);
    sums->loss = 0;
    sums->correct = sums->samples = 0;
  });
}

#if !defined(__CUDACC__)
/// `ends`: whether one of its rows ends the stream.
template <class Args>
void declare_loss(Accesses& touched, const Args& args, std::uint64_t width, bool ends) {
  touched.reads(args.factor.at, sizeof(float));
  declare_end(touched, args.stream, args.report);
  touched.writes(args.rows, args.count_rows * sizeof(RowLoss));
  touched.writes(args.gradient.at, args.count_rows * width * bytes_of(args.gradient.type));
  const SumsPlace place = touched.values(args.given);
  if (ends) return;
  touched.writes(args.total.samples, sizeof *args.total.samples);
  touched.writes(place.sums, sizeof(StepSums));
}
inline void declare(Accesses& touched, const CrossEntropyArgs& args) {
  touched.reads(args.logits, args.count_rows * args.classes * bytes_of(args.logits_type));
  touched.reads(args.labels, args.count_rows * sizeof(std::int32_t));
  bool ends = false;
  for (std::uint64_t row = 0; row < args.count_rows; ++row) {
    const std::int32_t label = touched.at(args.labels)[row];
    ends = ends || (label >= 0 && label != args.ignore && static_cast<std::uint32_t>(label) >= args.classes);
  }
  declare_loss(touched, args, args.classes, ends);
}
inline void declare(Accesses& touched, const NumberLossArgs& args) {
  touched.reads(args.numbers, args.count_rows * args.width * bytes_of(args.numbers_type));
  touched.reads(args.targets, args.count_rows * args.width * bytes_of(args.targets_type));
  bool ends = false;
  const void* const targets = touched.at(static_cast<const std::byte*>(args.targets));
  for (std::uint64_t i = 0; i < args.count_rows * args.width && args.beta == 0; ++i)
    ends = ends || load(targets, args.targets_type, i) > 1;
  declare_loss(touched, args, args.width, ends);
}
inline void declare(Accesses& touched, const NoLossArgs& args) {
  touched.writes(touched.values(args.given).sums, sizeof(StepSums));
}
#endif

}  // namespace troupe::cuda
