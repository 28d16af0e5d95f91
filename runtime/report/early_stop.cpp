#include "runtime/report/early_stop.hpp"

#include <fmt/format.h>

#include <cmath>

namespace troupe {

bool EarlyStop::add(std::uint32_t epoch, double loss) {
  epoch_ = epoch;
  if (std::isfinite(loss) && (best_epoch_ == 0 || loss < best_ - min_change_)) {
    best_ = loss;
    best_epoch_ = epoch;
    since_best_ = 0;
  } else {
    ++since_best_;
  }
  return is_due();
}

std::string EarlyStop::reason() const {
  const std::string best =
      best_epoch_ == 0 ? "none was finite" : fmt::format("best {:.6g} at epoch {}", best_, best_epoch_);
  return fmt::format("Stopped at epoch {}: the test loss has not improved for {} evaluation{}; {}", epoch_, since_best_,
                     since_best_ == 1 ? "" : "s", best);
}

}  // namespace troupe
