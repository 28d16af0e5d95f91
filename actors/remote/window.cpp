#include "actors/remote/detail/window.hpp"

#include "actors/remote/detail/inline_unit.hpp"
#include "actors/remote/wire.hpp"

namespace troupe::remote {

Amount Allowance::hear(const Amount& dealt) noexcept {
  const Amount before = dealt_;
  dealt_.messages = std::clamp(dealt.messages, dealt_.messages, sent_.messages);
  dealt_.charge = std::clamp(dealt.charge, dealt_.charge, sent_.charge);
  return {dealt_.messages - before.messages, dealt_.charge - before.charge};
}

bool Counter::count(std::uint64_t charge, bool on_lane) noexcept {
  messages_.add(1, on_lane);
  charge_.add(charge, on_lane);
  const std::uint64_t messages = messages_.get();
  const std::uint64_t total = charge_.get();
  // What was reported may be larger by what was skipped.
  const auto untold_messages = static_cast<std::int64_t>(messages - told_messages_.load(std::memory_order_relaxed));
  const auto untold_charge = static_cast<std::int64_t>(total - told_charge_.load(std::memory_order_relaxed));
  return 4 * untold_messages >= static_cast<std::int64_t>(limit_messages_.load(std::memory_order_relaxed)) ||
         4 * untold_charge >= static_cast<std::int64_t>(limit_charge_.load(std::memory_order_relaxed));
}

bool PeerIntake::runs_inline() const noexcept { return running_inline() == gate_.get(); }

void PeerIntake::dealt_with(std::uint64_t charge, bool on_lane, bool edge_is_due) noexcept {
  budget_->leave(charge * wire::kChargeBytes, on_lane);
  const bool due = counter_.count(charge, on_lane) || edge_is_due;
  // Counts from before the exchange are included in the report in progress, or in the one that is posted here.
  if (due && !telling_.exchange(true, std::memory_order_acq_rel)) gate_->run([tell = &tell_] { (*tell)(); });
}

bool PeerIntake::take(std::uint64_t charge) noexcept {
  budget_->enter(charge * wire::kChargeBytes, /*on_lane=*/true);
  // The last message may exceed the rest of the limit, and messages sent before it may arrive later. A report may be
  // behind what was handled.
  const std::uint64_t unhandled = taken_ - std::min(taken_, std::max(told_, counter_.dealt().charge));
  const bool allowed = unhandled < limit_ + largest_;
  largest_ = std::max(largest_, charge);
  taken_ += charge;
  return allowed;
}

std::uint64_t PeerIntake::most_messages() const noexcept { return limit_ / wire::charge_in(wire::charge_of(0, 0)) + 1; }

Amount PeerIntake::begin_report(const Amount& skipped) noexcept {
  telling_.exchange(false, std::memory_order_acq_rel);
  Amount all = counter_.dealt();
  all.messages += skipped.messages;
  all.charge += skipped.charge;
  told_ = std::clamp(all.charge, told_, taken_);
  all.charge = told_;
  counter_.told(all);
  return all;
}

void EdgeIntake::dealt_with(std::uint32_t charge) noexcept {
  const bool on_lane = peer_->runs_inline();
  peer_->dealt_with(charge, on_lane, counter_.count(charge, on_lane));
}

Amount EdgeIntake::tell() noexcept {
  const Amount dealt = counter_.dealt();
  const Amount all{std::max(dealt.messages, seen_.messages), std::max(dealt.charge, seen_.charge)};
  counter_.told(all);
  return all;
}

Amount EdgeIntake::skipped() const noexcept {
  const Amount dealt = counter_.dealt();
  return {seen_.messages - std::min(seen_.messages, dealt.messages),
          seen_.charge - std::min(seen_.charge, dealt.charge)};
}

}  // namespace troupe::remote
