#pragma once

#include <atomic>
#include <caf/actor_proxy.hpp>
#include <caf/actor_system.hpp>
#include <caf/mailbox_element.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "actors/remote/detail/budget.hpp"
#include "actors/remote/detail/lane_access.hpp"
#include "actors/remote/detail/request_list.hpp"
#include "actors/remote/detail/send_window.hpp"
#include "actors/remote/detail/window.hpp"
#include "runtime/base/mpsc_stack.hpp"

namespace troupe::remote {

class Outbound;
struct PeerState;
struct OutgoingCounts;

/// The approximate memory of a message that waits here.
std::uint64_t cost_of(caf::actor_system& system, const caf::mailbox_element& message) noexcept;

/// Takes its place among the messages to a remote actor: `actor` of this process was linked to it, or unlinked from it.
class LinkChange final : public caf::mailbox_element {
 public:
  LinkChange(caf::strong_actor_ptr of, caf::strong_actor_ptr linked, bool is_link)
      : caf::mailbox_element(std::move(of), caf::make_message_id(), {}), actor(std::move(linked)), links(is_link) {}
  caf::type_erased_tuple& content() override { return nothing_; }
  const caf::type_erased_tuple& content() const override { return nothing_; }
  caf::message move_content_to_message() override { return {}; }
  caf::message copy_content_to_message() const override { return {}; }

  const caf::strong_actor_ptr actor;
  const bool links;

 private:
  caf::empty_type_erased_tuple nothing_;
};

/// An actor of another process, as CAF sees it. It collects messages that are sent to it, without a lock or an
/// allocation, and posts itself to the control lane, where the engine takes the messages and writes them to the wire.
class Proxy final : public caf::actor_proxy, public LaneTask {
 public:
  Proxy(caf::actor_config& config, Outbound& outbound, PeerState& peer);
  ~Proxy() override;

  /// Any thread.
  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit* context) override;
  /// Ends it: monitors and links fire with `reason`, later requests are answered with an error.
  void kill_proxy(caf::execution_unit* context, caf::error reason) override;
  /// An actor of this process links to this one, or unlinks: the other process is told. CAF calls these with both
  /// actors locked, so they only post.
  bool add_backlink(caf::abstract_actor* local) override;
  bool remove_backlink(caf::abstract_actor* local) override;
  /// The same if the other process has requested it, so that it is not told.
  void link_quietly(caf::abstract_actor& local);
  void unlink_quietly(caf::abstract_actor& local);
  /// Asks the control lane to call run(); false if the lane is closed.
  bool wake() noexcept;
  /// Its window; null: none. It lives as long as the proxy.
  SendWindow* send_window() const noexcept { return send_window_.load(std::memory_order_acquire); }
  SendWindow& make_send_window();

  /// Called on the control lane.
  void run() noexcept override;
  bool alive() const noexcept { return alive_.load(std::memory_order_acquire); }
  PeerState& peer() const noexcept { return peer_; }

  Proxy* next_new = nullptr;  // for the engine, until the proxy has had its first turn
  // Used by the control lane:
  std::uint32_t next_sequence = 0;  // of the next message to this actor
  bool watched = false;             // its process was asked to report its end
  SenderCredit credit;              // for this actor
  RequestsTo requests;              // open ones to this actor
  struct Blocked {
    std::uint64_t ticket;  // orders what is blocked for one peer
    caf::mailbox_element_ptr message;
    Charge charge;
  };
  std::deque<Blocked> blocked;    // until the peer accepts more
  std::size_t not_overtaken = 0;  // so many of the first are urgent, or keep their places

 private:
  bool admit(const caf::mailbox_element& message);
  void push(caf::mailbox_element_ptr message);
  void fail_all_requests() noexcept;

  Outbound& outbound_;  // used only on the control lane, which ends first
  PeerState& peer_;
  const std::shared_ptr<LaneAccess> lane_access_;
  const std::shared_ptr<OutgoingCounts> outgoing_;
  const std::shared_ptr<Budget> budget_;  // of outgoing messages
  std::once_flag send_window_made_;
  std::unique_ptr<SendWindow> owned_send_window_;
  std::atomic<SendWindow*> send_window_{nullptr};  // the same, for threads that only read it
  using Messages = MpscStack<caf::mailbox_element, &caf::mailbox_element::next>;
  Messages sent_;
  std::atomic<std::uint64_t> queued_bytes_{0};  // of pushed messages, part of the budget
  std::atomic<bool> posted_{false};
  std::atomic<bool> alive_{true};
};

}  // namespace troupe::remote
