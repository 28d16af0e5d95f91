#include "runtime/exchange/step_totals.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"

namespace troupe {

StepTotals::StepTotals(std::uint32_t ranks, Step first) : next_(first), told_(ranks) {
  TROUPE_CHECK(ranks > 0, Code::invalid, "totals of no ranks");
}

void StepTotals::add(Rank rank, Step step, const StepSums& own) {
  TROUPE_CHECK(rank.value < told_.size(), Code::invalid, "rank ", rank.value, " tells sums of step ", step.value,
               " in a job of ", told_.size());
  std::deque<StepSums>& told = told_[rank.value];
  TROUPE_CHECK(step.value == next_.value + told.size(), Code::invalid, "rank ", rank.value, " tells sums of step ",
               step.value, ", but its next one is ", next_.value + told.size());
  told.push_back(own);
}

std::optional<StepTotals::Total> StepTotals::take() {
  if (std::any_of(told_.begin(), told_.end(), [](const auto& told) { return told.empty(); })) return {};
  Total total{next_, {}};
  for (std::deque<StepSums>& told : told_) {
    total.sums.add(told.front());
    told.pop_front();
  }
  next_ = troupe::next(next_);
  return total;
}

}  // namespace troupe
