#pragma once

#include <array>
#include <cstdint>

#include "runtime/base/any_processor.hpp"

// Loss scaling, with which small gradients are not lost in f16: the loss's gradient is multiplied by a scale, and the
// gradients to parameters are divided by it where they are written, in f32. Source: Micikevicius et al. 2018 (Mixed
// precision training), section 3.2; the dynamic scale as in PyTorch's GradScaler and NVIDIA's Apex.
namespace troupe {

/// How the scale changes.
struct LossScaling {
  double fixed = 0;                   // the scale, which never changes; 0: it is dynamic
  double start = 65536;               // the first dynamic scale
  std::uint32_t growth_steps = 2000;  // updates without an overflow after which it is doubled
  friend bool operator==(const LossScaling&, const LossScaling&) = default;
};

/// A dynamic scale stays between these.
inline constexpr float kLeastLossScale = 1, kMostLossScale = 16777216;

/// A scale and its history.
struct LossScale {
  float scale = 1;             // of the gradient of the mean loss of a rank's batch
  float inverse = 1;           // 1 / scale
  std::uint32_t clean = 0;     // updates since the last overflow or growth
  std::uint32_t left_out = 0;  // updates that were left out since the rule's state was zero
  friend bool operator==(const LossScale&, const LossScale&) = default;
};

/// A rank's scale, in memory that its device reads. `agreed` is what all ranks have had since they last agreed; `now`
/// differs from it only between the rounds of a policy whose ranks train locally. As large as a StepSums: devices copy
/// such pieces to another place in each step without recording the step anew.
struct LossScaleState {
  LossScale now, agreed;
  std::array<std::uint64_t, 4> reserved{};
  friend bool operator==(const LossScaleState&, const LossScaleState&) = default;
};
static_assert(sizeof(LossScaleState) == 64);

/// Whose verdict moves the scale.
enum class ScaleVerdict : std::uint32_t {
  common,  // of an update: that of all ranks, or of a rank that is alone with it
  own,     // of a rank's local step: until the next round the scale is its own
  round    // of a block of local steps: all ranks continue with one scale again
};

inline LossScale first_scale(const LossScaling& how) noexcept {
  const auto scale = static_cast<float>(how.fixed > 0 ? how.fixed : how.start);
  return {scale, 1 / scale, 0, 0};
}

/// After `updates` updates, of which one overflowed or none: half of the scale, or twice after growth_steps without.
TROUPE_ANY_PROCESSOR inline void adapt(LossScale& at, const LossScaling& how, bool overflowed,
                                       std::uint32_t updates) noexcept {
  float factor = 1;
  if (overflowed) {
    ++at.left_out;
    at.clean = 0;
    factor = 0.5F;
  } else if ((at.clean += updates) >= how.growth_steps) {
    at.clean = 0;
    factor = 2;
  }
  const float scale = at.scale * factor;
  if (how.fixed > 0 || scale < kLeastLossScale || scale > kMostLossScale) return;
  at.scale = scale;
  at.inverse = 1 / scale;
}

TROUPE_ANY_PROCESSOR inline void adapt(LossScaleState& state, const LossScaling& how, ScaleVerdict verdict,
                                       bool overflowed, std::uint32_t updates) noexcept {
  if (verdict == ScaleVerdict::round) {
    adapt(state.agreed, how, overflowed, updates);
    state.now = state.agreed;
    return;
  }
  adapt(state.now, how, overflowed, updates);
  if (verdict == ScaleVerdict::common) state.agreed = state.now;
}

}  // namespace troupe
