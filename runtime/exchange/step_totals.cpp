#include "runtime/exchange/step_totals.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"

namespace troupe {

StepTotals::StepTotals(std::uint32_t ranks, Step first) : next_(first), pending_(ranks) {
  TROUPE_CHECK(ranks > 0, Code::invalid, "totals of no ranks");
}

void StepTotals::add(Rank rank, Step step, const StepSums& own) {
  TROUPE_CHECK(rank.value < pending_.size(), Code::invalid, "rank ", rank.value, " tells sums of step ", step.value,
               " in a job of ", pending_.size());
  std::deque<StepSums>& pending = pending_[rank.value];
  TROUPE_CHECK(step.value == next_.value + pending.size(), Code::invalid, "rank ", rank.value, " tells sums of step ",
               step.value, ", but its next one is ", next_.value + pending.size());
  pending.push_back(own);
}

std::optional<StepTotals::Total> StepTotals::take() {
  if (std::any_of(pending_.begin(), pending_.end(), [](const auto& pending) { return pending.empty(); })) return {};
  Total total{next_, {}};
  for (std::deque<StepSums>& pending : pending_) {
    total.sums.add(pending.front());
    pending.pop_front();
  }
  next_ = troupe::next(next_);
  return total;
}

}  // namespace troupe
