#pragma once

#include <cstdint>
#include <string>

#include "runtime/report/report.hpp"

namespace troupe::rtrun {

/// The texts before and after the bar of a training run. `steps_per_epoch` may be 0 if unknown.
std::string progress_label(const RunProgress& progress, std::uint64_t steps_per_epoch, std::uint32_t epochs);
std::string progress_tail(const RunProgress& progress, std::uint64_t samples_per_step);

}  // namespace troupe::rtrun
