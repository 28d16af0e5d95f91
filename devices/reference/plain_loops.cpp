#include "devices/reference/plain_loops.hpp"

#include "runtime/compute/rules/gradient_check.hpp"
#include "runtime/compute/rules/tensor_norms.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace troupe::reference {
namespace {

float add_up(std::span<const float* const> parts, std::uint64_t i) noexcept {
  float sum = parts[0][i];
  for (const float* part : parts.subspan(1)) sum += part[i];
  return sum;
}

struct Probe {
  static constexpr bool kWatches = true;
  const std::function<bool(PassMoment, std::uint64_t)>& go_on;
};

}  // namespace

FlushDenormals::FlushDenormals() noexcept {
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  before_ = _mm_getcsr();
  _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero);
#endif
}

FlushDenormals::~FlushDenormals() {
#if defined(__x86_64__)
  _mm_setcsr(before_);
#endif
}

bool update(const RuleStep& rule, std::uint64_t number, const UpdateAddresses& at,
            std::span<const float* const> contributions, const StepSums& total,
            const std::function<bool(PassMoment, std::uint64_t)>& go_on) {
  const float scale = gradient_scale(rule, total);
  if (scale == 0) return true;
  const FlushDenormals flush;
  const auto piece = [&](std::uint64_t first, std::uint64_t count, const RuleStep& here) {
    for (std::uint64_t i = first; i < first + count; ++i) {
      float none = 0;
      update_element(here, scale, add_up(contributions, i), at.parameters[i], at.state[0] ? at.state[0][i] : none,
                     at.state[1] ? at.state[1][i] : none);
      if (here.average > 0) average_element(here, at.parameters[i], at.state[state_slots(here.kind)][i]);
      if (at.half) at.half[i] = to_bf16(at.parameters[i]);
    }
  };
  const auto elements = [&](std::uint64_t first, std::uint64_t count, const UndoCopy& undo) {
    undo.copy();
    for_each_piece(at, rule, first, count, piece);
  };
  return run_update_pass(at, number, elements, Probe{go_on});
}

void add_update_squares(const RuleStep& rule, const UpdateAddresses& at, const float* sum, const StepSums& total) {
  const float scale = gradient_scale(rule, total);
  if (scale == 0) return;
  const FlushDenormals flush;
  add_tensor_squares(at, rule, scale, sum);
}

void weighted_delta(float* to, const float* anchor, const float* from, float samples, std::uint64_t count) {
  const FlushDenormals flush;
  for (std::uint64_t i = 0; i < count; ++i) to[i] = samples * (anchor[i] - from[i]);
}

void reduce(float* to, std::span<const float* const> parts, std::uint64_t count, StepSums* sums,
            const NormCheck& check) {
  const FlushDenormals flush;
  for (std::uint64_t i = 0; i < count; ++i) to[i] = add_up(parts, i);
  if (sums != nullptr) check_gradient(*sums, to, parts, count, check);
}

}  // namespace troupe::reference
