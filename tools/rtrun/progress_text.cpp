#include "tools/rtrun/progress_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/words.hpp"

namespace troupe::rtrun {
namespace {

/// 1:02:03, 2:03, 0:07
std::string duration_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

std::string progress_label(const RunProgress& progress, std::uint64_t steps_per_epoch, std::uint32_t epochs) {
  if (steps_per_epoch == 0) return fmt::format("step {}/{}", progress.step, progress.steps);
  const std::uint64_t epoch =
      std::min(progress.step, progress.steps - std::min<std::uint64_t>(progress.steps, 1)) / steps_per_epoch + 1;
  return fmt::format("epoch {}/{} step {}/{}", epoch, std::max<std::uint64_t>(epochs, epoch), progress.step,
                     progress.steps);
}

std::string progress_tail(const RunProgress& progress, std::uint64_t samples_per_step) {
  std::string tail =
      fmt::format("{} samples/s", grouped(static_cast<std::uint64_t>(std::max(0.0, progress.samples_per_s))));
  const std::uint64_t left = progress.steps > progress.step ? progress.steps - progress.step : 0;
  if (progress.samples_per_s > 0 && samples_per_step > 0)
    tail += ", " + duration_text(static_cast<double>(left * samples_per_step) / progress.samples_per_s) + " left";
  return tail;
}

}  // namespace troupe::rtrun
