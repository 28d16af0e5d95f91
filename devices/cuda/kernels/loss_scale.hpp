#pragma once

#include "devices/cuda/kernels/sums.hpp"
#include "runtime/compute/rules/loss_scale.hpp"

// What moves the loss scale, and what becomes of gradients that overflow.
namespace troupe::cuda {

struct AdaptLossScaleArgs {
  const StreamState* stream;
  LossScaleState* state;
  double fixed;  // as in LossScaling, without its padding: a recorded step is known by the bytes of its arguments
  std::uint32_t growth_steps;
  ScaleVerdict verdict;
  std::uint32_t updates;
  std::uint32_t reserved;
  Given<ConstSumsPlace> given;
};

/// One thread. Without samples there was no update, and a gradient of no samples is finite.
TROUPE_KERNEL_BODY void adapt_loss_scale(const Block& block, const AdaptLossScaleArgs& args) {
  block.once([&] {
    const StepSums& sums = *block.at(block.values(args.given).sums);
    const bool overflowed = sums.bad_gradient != 0 || !is_finite(sums.gradient_squares);
    if (sums.samples == 0 && !overflowed) return;
    LossScaling how;
    how.fixed = args.fixed, how.growth_steps = args.growth_steps;
    adapt(*block.at(args.state), how, args.verdict, overflowed, args.updates);
  });
}

struct LeaveOutGradientArgs {
  const StreamState* stream;
  float* gradients;
  std::uint64_t count;
  Given<ConstSumsPlace> given;
};

TROUPE_KERNEL_BODY void leave_out_gradient(const Block& block, const LeaveOutGradientArgs& args) {
  if (block.at(block.values(args.given).sums)->bad_gradient == 0) return;
  float* const gradients = block.at(args.gradients);
  block.for_each(args.count, [&](std::uint64_t i) { gradients[i] = 0; });
}

/// Behind that.
struct LeaveOutSumsArgs {
  const StreamState* stream;
  Given<SumsPlace> given;
};

TROUPE_KERNEL_BODY void leave_out_sums(const Block& block, const LeaveOutSumsArgs& args) {
  block.once([&] {
    StepSums* const sums = block.at(block.values(args.given).sums);
    if (sums->bad_gradient == 0) return;
    sums->loss = 0;
    sums->correct = sums->samples = 0;
  });
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const AdaptLossScaleArgs& args) {
  touched.reads(touched.values(args.given).sums, sizeof(StepSums));
  touched.writes(args.state, sizeof *args.state);
}
inline void declare(Accesses& touched, const LeaveOutGradientArgs& args) {
  touched.reads(touched.values(args.given).sums, sizeof(StepSums));
  touched.writes(args.gradients, args.count * sizeof(float));
}
inline void declare(Accesses& touched, const LeaveOutSumsArgs& args) {
  touched.writes(touched.values(args.given).sums, sizeof(StepSums));
}
#endif

}  // namespace troupe::cuda
