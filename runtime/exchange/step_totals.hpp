#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/compute/stream.hpp"

namespace troupe {

/// What all ranks' steps add up to where no exchange tells it: each rank's own sums in, one total a step out, in the
/// order of steps, once all ranks have told theirs. Keeps what ranks that are ahead have told. Threads: one.
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
  /// The next total; nothing: a rank has not told its part.
  std::optional<Total> take();
  /// The step whose total comes next.
  Step next() const noexcept { return next_; }
  /// Whether every step that `rank` has told is taken.
  bool has_all_of(Rank rank) const { return told_.at(rank.value).empty(); }

 private:
  Step next_;
  std::vector<std::deque<StepSums>> told_;  // by rank, from step next_ on
};

}  // namespace troupe
