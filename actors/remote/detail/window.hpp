#pragma once

#include <algorithm>
#include <atomic>
#include <caf/fwd.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "actors/detail/receipt.hpp"
#include "actors/remote/detail/budget.hpp"
#include "actors/remote/detail/lane_access.hpp"
#include "actors/remote/remote_actors.hpp"

// Credits: how many unhandled messages of one process another one accepts. The receiver reports what it has handled
// since the start, in all and for each actor, so a late or duplicated report does no harm. A message that its actor has
// looked at and skipped counts as handled, since the message that the actor waits for may be the next one.
namespace troupe::remote {

/// A number of messages, and their size in units of wire::kChargeBytes.
struct Amount {
  std::uint64_t messages = 0;
  std::uint64_t charge = 0;
};

/// The sender's end: what was sent and not handled.
class SenderCredit {
 public:
  void spend(std::uint64_t charge) noexcept {
    ++sent_.messages;
    sent_.charge += charge;
  }
  /// Limited to what was sent, whatever the peer claims. Returns the increase.
  Amount take_report(const Amount& handled) noexcept;
  Amount in_use() const noexcept { return {sent_.messages - handled_.messages, sent_.charge - handled_.charge}; }

 private:
  Amount sent_;     // since the start
  Amount handled_;  // of that, as far as the peer has reported
};

/// The receiver's end: counts what was handled, and when to report it: after a quarter of `limit`. Threads: any.
class ReceiverCredit {
 public:
  explicit ReceiverCredit(const Amount& limit) noexcept { this->limit(limit); }
  void limit(const Amount& limit) noexcept {
    limit_messages_.store(limit.messages, std::memory_order_relaxed);
    limit_charge_.store(limit.charge, std::memory_order_relaxed);
  }
  /// Returns whether it is time to report.
  bool count(std::uint64_t charge, bool on_lane) noexcept {
    messages_.add(1, on_lane);
    charge_.add(charge, on_lane);
    const std::uint64_t messages = messages_.get();
    const std::uint64_t total = charge_.get();
    // What was reported may be larger by what was skipped.
    const auto unreported_messages =
        static_cast<std::int64_t>(messages - reported_messages_.load(std::memory_order_relaxed));
    const auto unreported_charge = static_cast<std::int64_t>(total - reported_charge_.load(std::memory_order_relaxed));
    return 4 * unreported_messages >= static_cast<std::int64_t>(limit_messages_.load(std::memory_order_relaxed)) ||
           4 * unreported_charge >= static_cast<std::int64_t>(limit_charge_.load(std::memory_order_relaxed));
  }
  Amount handled() const noexcept { return {messages_.get(), charge_.get()}; }
  void set_reported(const Amount& amount) noexcept {
    reported_messages_.store(amount.messages, std::memory_order_relaxed);
    reported_charge_.store(amount.charge, std::memory_order_relaxed);
  }
  std::uint64_t reported_messages() const noexcept { return reported_messages_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> limit_messages_, limit_charge_;
  Sum messages_, charge_;
  std::atomic<std::uint64_t> reported_messages_{0}, reported_charge_{0};
};

/// All messages of one peer. The messages in mailboxes keep it alive.
class PeerIntake {
 public:
  /// `tell` runs on the control lane. `limit` is the charge of unhandled messages that one peer may have here.
  PeerIntake(std::shared_ptr<LaneAccess> lane_access, std::shared_ptr<Budget> budget, std::uint64_t limit,
             std::function<void()> report)
      : lane_access_(std::move(lane_access)),
        budget_(std::move(budget)),
        report_(std::move(report)),
        limit_(limit),
        counter_({kUnlimited, limit}) {}
  void handled(std::uint64_t charge, bool on_lane, bool edge_is_due = false) noexcept;
  /// Whether the calling thread runs an inline actor of this process's lane.
  bool runs_inline() const noexcept;
  /// On the control lane: counts an arriving message; false if it exceeds the limit and what was reported.
  bool take(std::uint64_t charge) noexcept;
  /// On the control lane: the charge of arrived messages that were not reported as handled.
  std::uint64_t unreported() const noexcept { return taken_ - reported_; }
  std::uint64_t limit() const noexcept { return limit_; }
  /// The largest possible number of messages within the limit.
  std::uint64_t most_messages() const noexcept;
  /// On the control lane: from now on a change causes another report. `skipped`: looked at, in addition to those
  /// handled.
  Amount begin_report(const Amount& skipped) noexcept;
  const std::shared_ptr<Budget>& budget() const noexcept { return budget_; }

  static constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max() / 8;

 private:
  const std::shared_ptr<LaneAccess> lane_access_;
  const std::shared_ptr<Budget> budget_;
  const std::function<void()> report_;
  const std::uint64_t limit_;
  ReceiverCredit counter_;
  std::atomic<bool> reporting_{false};
  std::uint64_t taken_ = 0;
  std::uint64_t reported_ = 0;
  std::uint64_t largest_ = 0;  // the largest message so far
};

/// The messages of one peer to one actor of this process.
class EdgeIntake final : public troupe::detail::Intake {
 public:
  EdgeIntake(caf::actor_id to, std::shared_ptr<PeerIntake> peer)
      : actor(to),
        peer_(std::move(peer)),
        counter_({PeerIntake::kUnlimited, std::max<std::uint64_t>(peer_->limit() / 2, 1)}) {}
  void handled(std::uint32_t charge) noexcept override;
  /// The sender has set a window for this actor.
  void limit(const Amount& window) noexcept {
    counter_.limit(window);
    bounded_ = true;
  }
  /// The rest is called on the control lane.
  void delivered(std::uint64_t charge) noexcept {
    ++delivered_.messages;
    delivered_.charge += charge;
  }
  /// The actor has looked at all delivered messages, and waits for more.
  void all_seen() noexcept { seen_ = delivered_; }
  bool may_have_skipped() const noexcept { return seen_.messages < delivered_.messages && in_mailbox() > 0; }
  bool bounded() const noexcept { return bounded_; }
  std::uint64_t in_mailbox() const noexcept {
    return delivered_.messages - std::min(delivered_.messages, counter_.handled().messages);
  }
  Amount report() noexcept;
  bool has_unreported() const noexcept {
    return std::max(counter_.handled().messages, seen_.messages) != counter_.reported_messages();
  }
  /// What the actor has looked at and not handled.
  Amount skipped() const noexcept;

  const caf::actor_id actor;

 private:
  const std::shared_ptr<PeerIntake> peer_;
  ReceiverCredit counter_;
  Amount delivered_;
  Amount seen_;
  bool bounded_ = false;
};

}  // namespace troupe::remote
