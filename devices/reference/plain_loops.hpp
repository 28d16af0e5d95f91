#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "runtime/compute/update_pass.hpp"

// What the streams of the reference device and of the fake one compute.
namespace troupe::reference {

/// On this thread denormals count as zero, as on every device, so that updates have the same bits everywhere.
class FlushDenormals {
 public:
  FlushDenormals() noexcept;
  ~FlushDenormals();
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  [[maybe_unused]] unsigned before_ = 0;
};

/// Stream::update as plain loops. False: `go_on` stopped it, as if its process had ended there.
bool update(const RuleStep& rule, std::uint64_t number, const UpdateAddresses& at,
            std::span<const float* const> contributions, const StepSums& total,
            const std::function<bool(PassMoment, std::uint64_t)>& go_on);

/// Stream::add_update_squares as plain loops.
void add_update_squares(const RuleStep& rule, const UpdateAddresses& at, const float* sum, const StepSums& total);
/// Stream::weighted_delta as plain loops.
void weighted_delta(float* to, const float* anchor, const float* from, float samples, std::uint64_t count);
/// Stream::reduce as plain loops. `sums`: those of the check; null: nothing is reported.
void reduce(float* to, std::span<const float* const> parts, std::uint64_t count, StepSums* sums,
            const NormCheck& check);

}  // namespace troupe::reference
