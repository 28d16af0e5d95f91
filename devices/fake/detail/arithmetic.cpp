#include "devices/fake/detail/arithmetic.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace troupe::fake {
namespace {

/// Denormals count as zero in here, as on every device: updates have the same bits everywhere.
class FlushDenormals {
 public:
  FlushDenormals() noexcept {
#if defined(__x86_64__)
    before_ = _mm_getcsr();
    _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero);
#endif
  }
  ~FlushDenormals() {
#if defined(__x86_64__)
    _mm_setcsr(before_);
#endif
  }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  static constexpr unsigned kFlushToZero = 0x8000;
  static constexpr unsigned kDenormalsAreZero = 0x0040;
  [[maybe_unused]] unsigned before_ = 0;
};

float add_up(std::span<const float* const> parts, std::uint64_t i) noexcept {
  float sum = parts[0][i];
  for (const float* part : parts.subspan(1)) sum += part[i];
  return sum;
}

void apply(const RuleStep& rule, float scale, float sum, float& p, float& s0, float& s1) noexcept {
  switch (rule.kind) {
    case RuleKind::sgd: return update_element<RuleKind::sgd>(rule, scale, sum, p, s0, s1);
    case RuleKind::momentum: return update_element<RuleKind::momentum>(rule, scale, sum, p, s0, s1);
    case RuleKind::nesterov: return update_element<RuleKind::nesterov>(rule, scale, sum, p, s0, s1);
    case RuleKind::adam: return update_element<RuleKind::adam>(rule, scale, sum, p, s0, s1);
    case RuleKind::adamw: return update_element<RuleKind::adamw>(rule, scale, sum, p, s0, s1);
    case RuleKind::block: return update_element<RuleKind::block>(rule, scale, sum, p, s0, s1);
  }
}

struct Probe {
  static constexpr bool kWatches = true;
  const std::function<bool(PassMoment, std::uint64_t)>& go_on;
};

}  // namespace

bool update(const RuleStep& rule, std::uint64_t number, const UpdateAddresses& at,
            std::span<const float* const> contributions, const StepSums& total,
            const std::function<bool(PassMoment, std::uint64_t)>& go_on) {
  if (total.samples == 0) return true;
  const FlushDenormals flush;
  const auto scale = static_cast<float>(1.0 / static_cast<double>(total.samples));
  const auto elements = [&](std::uint64_t first, std::uint64_t count, const UndoCopy& undo) {
    undo.copy();
    for (std::uint64_t i = first; i < first + count; ++i) {
      float none = 0;
      apply(rule, scale, add_up(contributions, i), at.parameters[i], at.state[0] ? at.state[0][i] : none,
            at.state[1] ? at.state[1][i] : none);
      if (at.half) at.half[i] = to_bf16(at.parameters[i]);
    }
  };
  return run_update_pass(at, number, elements, Probe{go_on});
}

void weigh(float* to, const float* anchor, const float* from, float samples, std::uint64_t count) {
  const FlushDenormals flush;
  for (std::uint64_t i = 0; i < count; ++i) to[i] = samples * (anchor[i] - from[i]);
}

void reduce(float* to, std::span<const float* const> parts, std::uint64_t count) {
  const FlushDenormals flush;
  for (std::uint64_t i = 0; i < count; ++i) to[i] = add_up(parts, i);
}

}  // namespace troupe::fake
