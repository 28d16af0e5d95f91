#pragma once

#include <span>

#include "devices/cpu/kernels/kernels.hpp"
#include "runtime/compute/update_pass.hpp"

namespace troupe::cpu {

/// to[i] = sum of parts[.][i], in the order of `parts` (at least one); `to` may be one of them.
void reduce(const Kernels& kernels, float* to, std::span<const float* const> parts, std::uint64_t count);

/// Stream::add_update_squares on addresses.
void add_update_squares(const Kernels& kernels, const RuleStep& rule, const UpdateAddresses& at, const float* sum,
                        const StepSums& total);

/// The arithmetic of an update for some elements of a stripe, for run_update_pass.
class UpdateArithmetic {
 public:
  UpdateArithmetic(const Kernels& kernels, const RuleStep& rule, float scale, const UpdateAddresses& at,
                   std::span<const float* const> contributions) noexcept
      : kernels_(kernels), rule_(rule), scale_(scale), at_(at), contributions_(contributions) {}
  void operator()(std::uint64_t first, std::uint64_t count, const UndoCopy& undo) const;

 private:
  void run(const UpdatePart& part, std::uint64_t first, const UndoCopy& undo) const;

  const Kernels& kernels_;
  const RuleStep& rule_;
  const float scale_;
  const UpdateAddresses& at_;
  const std::span<const float* const> contributions_;
};

/// Stream::update on addresses; false when the probe stopped it.
template <class Probe>
bool update(const Kernels& kernels, const RuleStep& rule, std::uint64_t number, const UpdateAddresses& at,
            std::span<const float* const> contributions, const StepSums& total, Probe&& probe) {
  const float scale = gradient_scale(rule, total);
  if (scale == 0) return true;
  return run_update_pass(at, number, UpdateArithmetic{kernels, rule, scale, at, contributions}, probe);
}

}  // namespace troupe::cpu
