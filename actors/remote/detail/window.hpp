#pragma once

#include <algorithm>
#include <atomic>
#include <caf/fwd.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "actors/detail/receipt.hpp"
#include "actors/remote/detail/gate.hpp"
#include "actors/remote/remote_actors.hpp"

// Credits: how much of one process's messages another one holds at most, in all (a peer's window) and for one actor (an
// edge's). The receiver tells what it has dealt with since the start, so a report that is late or doubled does no harm.
namespace troupe::remote {

/// Messages, and their charge in units of wire::kChargeBytes.
struct Amount {
  std::uint64_t messages = 0;
  std::uint64_t charge = 0;
};

Amount limit_of_peer(const Window& window) noexcept;
/// Half of it, so that one slow actor does not take everything.
Amount limit_of_edge(const Window& window) noexcept;

/// The sender's side: what may still be sent.
class Allowance {
 public:
  void limit(const Amount& limit) noexcept { limit_ = limit; }
  bool open() const noexcept {
    return sent_.messages - dealt_.messages < limit_.messages && sent_.charge - dealt_.charge < limit_.charge;
  }
  /// The last message may exceed what is left.
  void spend(std::uint16_t charge) noexcept {
    ++sent_.messages;
    sent_.charge += charge;
  }
  void hear(const Amount& dealt) noexcept;
  std::uint64_t in_use() const noexcept { return sent_.messages - dealt_.messages; }

 private:
  Amount limit_;
  Amount sent_;   // since the start
  Amount dealt_;  // of that, as far as the peer told
};

/// The receiver's side: counts what is dealt with, and when it is time to tell. Threads: any.
class Counter {
 public:
  explicit Counter(const Amount& limit) noexcept : limit_(limit) {}
  /// Whether a quarter of the limit is dealt with and not told.
  bool count(std::uint32_t charge) noexcept;
  /// What to tell now.
  Amount tell() noexcept;
  bool has_news() const noexcept;
  const Amount& limit() const noexcept { return limit_; }
  std::uint64_t messages() const noexcept { return messages_.load(std::memory_order_relaxed); }

 private:
  const Amount limit_;
  std::atomic<std::uint64_t> messages_{0}, charge_{0};
  std::atomic<std::uint64_t> told_messages_{0}, told_charge_{0};
};

/// All messages of one peer. Kept alive by those that are in mailboxes.
class PeerIntake {
 public:
  /// `tell` runs on the control lane.
  PeerIntake(std::shared_ptr<Gate> gate, const Window& window, std::function<void()> tell)
      : gate_(std::move(gate)), tell_(std::move(tell)), counter_(limit_of_peer(window)) {}
  void dealt_with(std::uint32_t charge, bool edge_is_due = false) noexcept;
  /// On the control lane: one more came; false when that is more than the window and what was dealt with allow.
  bool take() noexcept;
  /// How many may be here at once.
  std::uint64_t limit() const noexcept { return counter_.limit().messages; }
  /// On the control lane: from now on news call for another report.
  Amount begin_report() noexcept;

 private:
  const std::shared_ptr<Gate> gate_;
  const std::function<void()> tell_;
  Counter counter_;
  std::atomic<bool> telling_{false};
  std::uint64_t taken_ = 0;
  std::uint64_t dealt_with_ = 0;  // at least
};

/// The messages of one peer to one actor of this process.
class EdgeIntake final : public troupe::detail::Intake {
 public:
  EdgeIntake(caf::actor_id to, std::shared_ptr<PeerIntake> peer, const Window& window)
      : actor(to), peer_(std::move(peer)), counter_(limit_of_edge(window)) {}
  void dealt_with(std::uint32_t charge) noexcept override { peer_->dealt_with(charge, counter_.count(charge)); }
  Amount tell() noexcept { return counter_.tell(); }
  bool has_news() const noexcept { return counter_.has_news(); }
  /// On the control lane: one more lies in the mailbox, or is about to.
  void delivered() noexcept { ++delivered_; }
  std::uint64_t in_mailbox() const noexcept { return delivered_ - std::min(delivered_, counter_.messages()); }

  const caf::actor_id actor;

 private:
  const std::shared_ptr<PeerIntake> peer_;
  Counter counter_;
  std::uint64_t delivered_ = 0;
};

}  // namespace troupe::remote
