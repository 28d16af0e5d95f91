#include "runtime/lanes/lane_options.hpp"

namespace troupe {
namespace {

/// Less time than the wake-up takes that it may save.
constexpr std::chrono::microseconds kLeastSpin{5};
constexpr std::chrono::microseconds kMostSpin{200};

}  // namespace

LanePair lanes_on(std::span<const std::uint32_t> control, std::span<const std::uint32_t> bulk) {
  LanePair lanes;
  if (!control.empty()) {
    lanes.control.spin = kLeastSpin;
    lanes.control.spin_most = kMostSpin;
  }
  lanes.control.cpus.assign(control.begin(), control.end());
  lanes.bulk.cpus.assign(bulk.begin(), bulk.end());
  return lanes;
}

LanePair lane_options_for(std::span<const std::uint32_t> cpus, std::uint32_t threads) {
  if (cpus.size() <= threads) return {};
  const bool two = cpus.size() - threads >= 2;
  return lanes_on(cpus.last(1), two ? cpus.subspan(cpus.size() - 2, 1) : cpus.first(0));
}

}  // namespace troupe
