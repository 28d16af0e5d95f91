#include <algorithm>

#include "actors/remote/detail/window.hpp"
#include "actors/remote/wire.hpp"

namespace troupe::remote {
namespace {

std::uint64_t at_least_one(std::uint64_t value) noexcept { return std::max<std::uint64_t>(value, 1); }

}  // namespace

Amount limit_of_peer(const Window& window) noexcept {
  return {at_least_one(window.messages), at_least_one(window.bytes / wire::kChargeBytes)};
}

Amount limit_of_edge(const Window& window) noexcept {
  const Amount all = limit_of_peer(window);
  return {at_least_one(all.messages / 2), at_least_one(all.charge / 2)};
}

/// Never more than was sent, whatever a peer claims.
void Allowance::hear(const Amount& dealt) noexcept {
  dealt_.messages = std::clamp(dealt.messages, dealt_.messages, sent_.messages);
  dealt_.charge = std::clamp(dealt.charge, dealt_.charge, sent_.charge);
}

bool Counter::count(std::uint32_t charge) noexcept {
  const std::uint64_t messages = messages_.fetch_add(1, std::memory_order_relaxed) + 1;
  const bool many = 4 * (messages - told_messages_.load(std::memory_order_relaxed)) >= limit_.messages;
  if (charge == 0) return many;
  const std::uint64_t total = charge_.fetch_add(charge, std::memory_order_relaxed) + charge;
  return many || 4 * (total - told_charge_.load(std::memory_order_relaxed)) >= limit_.charge;
}

Amount Counter::tell() noexcept {
  const Amount now{messages_.load(std::memory_order_relaxed), charge_.load(std::memory_order_relaxed)};
  told_messages_.store(now.messages, std::memory_order_relaxed);
  told_charge_.store(now.charge, std::memory_order_relaxed);
  return now;
}

bool Counter::has_news() const noexcept {
  return messages_.load(std::memory_order_relaxed) != told_messages_.load(std::memory_order_relaxed);
}

void PeerIntake::dealt_with(std::uint32_t charge, bool edge_is_due) noexcept {
  const bool due = counter_.count(charge) || edge_is_due;
  // What was counted before the exchange is seen by the report that is under way, or by the one posted here.
  if (due && !telling_.exchange(true, std::memory_order_acq_rel)) gate_->run([tell = &tell_] { (*tell)(); });
}

bool PeerIntake::take() noexcept {
  if (++taken_ - dealt_with_ <= limit()) return true;
  dealt_with_ = counter_.messages();
  return taken_ - dealt_with_ <= limit();
}

Amount PeerIntake::begin_report() noexcept {
  telling_.exchange(false, std::memory_order_acq_rel);
  return counter_.tell();
}

}  // namespace troupe::remote
