#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/compute/stream.hpp"

namespace troupe {

/// Adds up all ranks' sums of a step when no exchange does so: each rank's own sums go in, and one total per step comes
/// out, in the order of steps, once all ranks have reported. Keeps the reports of ranks that are ahead. Threads: one.
class StepTotals {
 public:
  struct Total {
    Step step;
    StepSums sums;  // added in rank order
    friend bool operator==(const Total& a, const Total& b) noexcept {
      return a.step == b.step && a.sums.loss == b.sums.loss && a.sums.correct == b.sums.correct &&
             a.sums.samples == b.sums.samples;
    }
  };

  /// Ranks begin with step `first`.
  StepTotals(std::uint32_t ranks, Step first);

  /// `rank` has committed `step`, the one after its last. Throws Error{invalid} for another step or rank.
  void add(Rank rank, Step step, const StepSums& own);
  /// The next total; empty: a rank has not reported yet.
  std::optional<Total> take();
  /// The step of the next total.
  Step next() const noexcept { return next_; }
  /// Whether all sums that `rank` has reported are in totals that were taken.
  bool has_all_of(Rank rank) const { return pending_.at(rank.value).empty(); }

 private:
  Step next_;
  std::vector<std::deque<StepSums>> pending_;  // by rank, from step next_ on
};

}  // namespace troupe
