#include "transports/collectives/detail/group_failure.hpp"

namespace troupe::collectives {

void GroupFailure::fail(const Status& why) noexcept {
  failed_.store(true, std::memory_order_release);
  for (Timeline* const line : lines_) line->poison(why);  // the first reason remains
}

/// A rank that fails because of another rank's notice sends none itself: `failed_` is set by then.
void GroupFailure::fail_everywhere(const Status& why) noexcept {
  const bool first = !failed();
  fail(why);
  if (!first || others_told_.exchange(true)) return;
  notices_.why = why;
  loop_.post(notices_);
}

void GroupFailure::Notices::run() noexcept {
  for (; told_ < failure_.plan_.ranks(); ++told_) {
    if (try_tell(told_)) continue;
    failure_.loop_.post(*this);  // the transport has no space: again in the lane's next round
    return;
  }
}

bool GroupFailure::Notices::try_tell(std::uint32_t rank) {
  const RoundPlan& plan = failure_.plan_;
  if (rank == plan.self()) return true;
  const DirectGroup& group = plan.group();
  return failure_.loop_.transport().send(group.peers[rank], Lane::bulk, Class::control, Channel::exchange,
                                         encode(AbortNotice{group.view.value, plan.self(), why, group.id}), {}, *this);
}

}  // namespace troupe::collectives
