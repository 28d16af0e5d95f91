#include "actors/remote/detail/window.hpp"

#include "actors/remote/detail/inline_unit.hpp"
#include "actors/remote/wire.hpp"

namespace troupe::remote {

Amount SenderCredit::take_report(const Amount& handled) noexcept {
  const Amount before = handled_;
  handled_.messages = std::clamp(handled.messages, handled_.messages, sent_.messages);
  handled_.charge = std::clamp(handled.charge, handled_.charge, sent_.charge);
  return {handled_.messages - before.messages, handled_.charge - before.charge};
}

bool PeerIntake::runs_inline() const noexcept { return running_inline() == lane_access_.get(); }

void PeerIntake::handled(std::uint64_t charge, bool on_lane, bool edge_is_due) noexcept {
  budget_->leave(charge * wire::kChargeBytes, on_lane);
  const bool due = counter_.count(charge, on_lane) || edge_is_due;
  // Counts from before the exchange are included in the report in progress, or in the one that is posted here.
  if (due && !reporting_.exchange(true, std::memory_order_acq_rel))
    lane_access_->run([report = &report_] { (*report)(); });
}

bool PeerIntake::take(std::uint64_t charge) noexcept {
  budget_->enter(charge * wire::kChargeBytes, /*on_lane=*/true);
  // The last message may exceed the rest of the limit, and messages sent before it may arrive later. A report may be
  // behind what was handled.
  const std::uint64_t unhandled = taken_ - std::min(taken_, std::max(reported_, counter_.handled().charge));
  const bool allowed = unhandled < limit_ + largest_;
  largest_ = std::max(largest_, charge);
  taken_ += charge;
  return allowed;
}

std::uint64_t PeerIntake::most_messages() const noexcept { return limit_ / wire::charge_in(wire::charge_of(0, 0)) + 1; }

Amount PeerIntake::begin_report(const Amount& skipped) noexcept {
  reporting_.exchange(false, std::memory_order_acq_rel);
  Amount all = counter_.handled();
  all.messages += skipped.messages;
  all.charge += skipped.charge;
  reported_ = std::clamp(all.charge, reported_, taken_);
  all.charge = reported_;
  counter_.set_reported(all);
  return all;
}

void EdgeIntake::handled(std::uint32_t charge) noexcept {
  const bool on_lane = peer_->runs_inline();
  peer_->handled(charge, on_lane, counter_.count(charge, on_lane));
}

Amount EdgeIntake::report() noexcept {
  const Amount handled = counter_.handled();
  const Amount all{std::max(handled.messages, seen_.messages), std::max(handled.charge, seen_.charge)};
  counter_.set_reported(all);
  return all;
}

Amount EdgeIntake::skipped() const noexcept {
  const Amount handled = counter_.handled();
  return {seen_.messages - std::min(seen_.messages, handled.messages),
          seen_.charge - std::min(seen_.charge, handled.charge)};
}

}  // namespace troupe::remote
