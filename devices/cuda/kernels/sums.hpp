#pragma once

#include "devices/cuda/kernels/numbers.hpp"
#include "devices/cuda/kernels/square_sums.hpp"
#include "runtime/compute/rules/gradient_check.hpp"
#include "runtime/compute/stream.hpp"

// Reductions of gradients and of a step's sums, and what is measured on the way.
namespace troupe::cuda {

inline constexpr std::uint32_t kMaxParts = 256;  // of one reduction
inline constexpr std::uint32_t kMaxSums = 128;   // parts of a total

struct ReduceArgs {
  const StreamState* stream;
  float* to;
  std::uint64_t count;
  std::uint64_t count_parts;
  const float* parts[kMaxParts];
};

TROUPE_KERNEL_BODY void reduce(const Block& block, const ReduceArgs& args) {
  float* const to = block.at(args.to);
  bool in_packs = is_in_packs(to, Stored::f32);
  for (std::uint64_t p = 0; p < args.count_parts; ++p)
    in_packs = in_packs && is_in_packs(block.at(args.parts[p]), Stored::f32);
  for_each_pack(block, args.count, in_packs, [&](auto width, std::uint64_t i) {
    auto sum = load(width, block.at(args.parts[0]), Stored::f32, i);
    for (std::uint64_t p = 1; p < args.count_parts; ++p) {
      const auto more = load(width, block.at(args.parts[p]), Stored::f32, i);
      for (unsigned k = 0; k < width(); ++k) sum.of[k] += more.of[k];
    }
    store(width, to, Stored::f32, i, sum);
  });
}

struct SumsPlace {
  StepSums* sums = nullptr;
};

/// How many blocks have the strands of a gradient. A short gradient has the first ones only.
inline constexpr unsigned kGradientBlocks = kGradientStrands / kSquareGroups;
static_assert(kGradientBlocks <= SquareScratch::kMostSums);

struct CheckGradientArgs {
  const StreamState* stream;
  const float* sum;
  std::uint64_t count;
  std::uint64_t first_element;
  std::uint32_t count_parts;
  std::uint32_t squares;  // 0: not wanted
  const float* parts[kMaxParts];
  std::uint32_t ranks[kMaxParts];  // whose the parts are
  SquareScratch* scratch;          // if squares are wanted
  Given<SumsPlace> given;
};

/// Of the sum and all parts, who made element `at` not finite: see find_bad.
TROUPE_KERNEL_BODY std::uint64_t whose(const Block& block, const CheckGradientArgs& args, std::uint64_t at) {
  std::uint32_t own = args.count_parts - 1;
  for (std::uint32_t part = 0; part < args.count_parts; ++part) {
    if (args.parts[part] == args.sum)
      own = part;
    else if (!is_finite(block.at(args.parts[part])[at]))
      return bad_at(args.first_element + at, args.ranks[part]);
  }
  return bad_at(args.first_element + at, args.ranks[own]);
}

/// Only whether all is finite: as many blocks as there are.
TROUPE_KERNEL_BODY void find_not_finite(const Block& block, const CheckGradientArgs& args) {
  const float* const sum = block.at(args.sum);
  std::uint64_t first = args.count;  // that this thread has seen
  for_each_pack(block, args.count, is_in_packs(sum, Stored::f32), [&](auto width, std::uint64_t i) {
    const auto values = load(width, sum, Stored::f32, i);
    for (unsigned k = 0; k < width(); ++k)
      if (!is_finite(values.of[k]) && i + k < first) first = i + k;
  });
  if (first < args.count)
    Block::lower(&block.at(block.values(args.given).sums)->bad_gradient, whose(block, args, first));
}

TROUPE_KERNEL_BODY void check_gradient(const Block& block, const CheckGradientArgs& args) {
  if (args.squares == 0) return find_not_finite(block, args);
  const float* const sum = block.at(args.sum);
  SquareScratch* const scratch = block.at(args.scratch);
  SquareStrandsHere<1, kGradientBlocks> strands(block, block.index());
  strands.add(args.count, [&](SquareSums<1>& sums, std::uint64_t i) {
    const auto value = static_cast<double>(sum[i]);
    sums.of[0] += value * value;
  });
  StepSums* const sums = block.at(block.values(args.given).sums);
  strands.search_not_finite(args.count, [&](std::uint64_t i) {
    if (is_finite(sum[i])) return false;
    Block::lower(&sums->bad_gradient, whose(block, args, i));
    return true;
  });
  strands.finish(scratch->sums, scratch->arrived, block.count(),
                 [&](const SquareSums<1>& all) { sums->gradient_squares += all.of[0]; });
}

struct SumUpValues {
  StepSums* total = nullptr;
  const StepSums* parts[kMaxSums] = {};
};

struct SumUpArgs {
  const StreamState* stream;
  std::uint64_t count_parts;
  Given<SumUpValues> given;
};

/// One thread.
TROUPE_KERNEL_BODY void add_up_sums(const Block& block, std::uint64_t count_parts, const SumUpValues& values) {
  block.once([&] {
    StepSums total;
    for (std::uint64_t p = 0; p < count_parts; ++p) total.add(*block.at(values.parts[p]));
    *block.at(values.total) = total;
  });
}
TROUPE_KERNEL_BODY void sum_up(const Block& block, const SumUpArgs& args) {
  add_up_sums(block, args.count_parts, args.given.block == nullptr ? args.given.own : *block.at(args.given.block));
}

/// Copies a step's sums, whose places change from step to step.
struct CopySumsValues {
  StepSums* to = nullptr;
  const StepSums* from = nullptr;
};
struct CopySumsArgs {
  const StreamState* stream;
  Given<CopySumsValues> given;
};
TROUPE_KERNEL_BODY void copy_sums(const Block& block, const CopySumsArgs& args) {
  block.once([&] {
    const CopySumsValues values = block.values(args.given);
    const StepSums copied = *block.at(values.from);
    *block.at(values.to) = copied;
  });
}

struct ConstSumsPlace {
  const StepSums* sums = nullptr;
};

struct WeightedDeltaArgs {
  const StreamState* stream;
  float* to;
  const float* anchor;
  const float* from;
  std::uint64_t count;
  Given<ConstSumsPlace> given;
};

TROUPE_KERNEL_BODY void weighted_delta(const Block& block, const WeightedDeltaArgs& args) {
  float* const to = block.at(args.to);
  const float* const anchor = block.at(args.anchor);
  const float* const from = block.at(args.from);
  const auto samples = static_cast<float>(block.at(block.values(args.given).sums)->samples);
  const bool in_packs =
      is_in_packs(to, Stored::f32) && is_in_packs(anchor, Stored::f32) && is_in_packs(from, Stored::f32);
  for_each_pack(block, args.count, in_packs, [&](auto width, std::uint64_t i) {
    const auto before = load(width, anchor, Stored::f32, i), now = load(width, from, Stored::f32, i);
    auto delta = before;
    for (unsigned k = 0; k < width(); ++k) delta.of[k] = samples * (before.of[k] - now.of[k]);
    store(width, to, Stored::f32, i, delta);
  });
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const ReduceArgs& args) {
  for (std::uint64_t p = 0; p < args.count_parts; ++p) touched.reads(args.parts[p], args.count * sizeof(float));
  touched.writes(args.to, args.count * sizeof(float));
}
inline void declare(Accesses& touched, const CheckGradientArgs& args) {
  touched.reads(args.sum, args.count * sizeof(float));
  for (std::uint32_t p = 0; p < args.count_parts; ++p) touched.reads(args.parts[p], args.count * sizeof(float));
  touched.writes(touched.values(args.given).sums, sizeof(StepSums));
  if (args.squares != 0) touched.writes(args.scratch, sizeof(SquareScratch));
}
inline void declare(Accesses& touched, const SumUpArgs& args) {
  const SumUpValues values = touched.values(args.given);
  for (std::uint64_t p = 0; p < args.count_parts; ++p) touched.reads(values.parts[p], sizeof(StepSums));
  touched.writes(values.total, sizeof(StepSums));
}
inline void declare(Accesses& touched, const CopySumsArgs& args) {
  const CopySumsValues values = touched.values(args.given);
  touched.reads(values.from, sizeof(StepSums));
  touched.writes(values.to, sizeof(StepSums));
}
inline void declare(Accesses& touched, const WeightedDeltaArgs& args) {
  touched.reads(args.anchor, args.count * sizeof(float));
  touched.reads(args.from, args.count * sizeof(float));
  touched.reads(touched.values(args.given).sums, sizeof(StepSums));
  touched.writes(args.to, args.count * sizeof(float));
}
#endif

}  // namespace troupe::cuda
