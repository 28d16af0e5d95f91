#pragma once

#include <array>
#include <atomic>
#include <caf/actor_control_block.hpp>
#include <caf/error.hpp>
#include <caf/node_id.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/remote/detail/number_set.hpp"
#include "actors/remote/detail/window.hpp"
#include "actors/remote/remote_actors.hpp"

namespace troupe::remote {

/// A counter that one thread writes and any may read.
class Tally {
 public:
  void add(std::uint64_t n = 1) noexcept { value_.store(get() + n, std::memory_order_relaxed); }
  void set(std::uint64_t n) noexcept { value_.store(n, std::memory_order_relaxed); }
  std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// Counters of the messages to one peer, which every thread updates. Outlives the peer's state, as proxies do.
struct OutgoingCounts {
  std::atomic<std::uint64_t> messages{0};       // not sent yet
  std::atomic<std::uint64_t> sends_refused{0};  // refused for lack of memory or of space in a window
  std::atomic<std::uint64_t> unreported{0};     // of these, dropped and not reported yet
};

/// An actor has ended, with the reason.
struct Ended {
  caf::actor_id actor = 0;
  caf::error reason;
};

/// What this process knows of one other process. Each part is changed by one class, which is named beside it. Threads:
/// the control lane's, unless stated otherwise. Lives as long as the engine, also for a lost peer.
struct PeerState {
  PeerState(Peer peer, caf::node_id its_node) : number(peer), node(std::move(its_node)) {}

  const Peer number;  // any thread reads this and the next member
  const caf::node_id node;
  const std::shared_ptr<OutgoingCounts> outgoing = std::make_shared<OutgoingCounts>();  // used by any thread
  std::atomic<std::uint32_t> proxies_made{0};  // for Proxies; used by any thread
  struct {
    Tally messages_sent, bytes_sent, messages_received, bytes_received, batches_sent, batched_sent, unhandled;
    std::array<Tally, std::tuple_size_v<decltype(PeerCounters::answer_ns_log2)>> answer_ns_log2;
  } counts;  // any thread reads them

  // For Engine:
  bool dead = false;
  bool will_be_lost = false;          // will be lost: nothing more is accepted
  Status why;                         // the reason if it is dead
  bool received_since_check = false;  // since the last check of heartbeats; set by Inbound
  bool sent_since_check = false;      // likewise; set by FrameSender

  /// For FrameSender: a frame that is being filled.
  struct {
    std::vector<std::byte> frame;
    std::uint64_t heads = 0;
  } batch;

  // For Outbound:
  std::uint32_t next_order = 0;  // order number of the next message, link change or DOWN notice to this peer
  std::uint64_t next_body = 0;   // number of the next body that is sent to it in pieces

  /// For Backlog: what this peer does not accept yet. Tickets order messages and DOWN notices relative to each other.
  struct {
    std::uint64_t offered = 0;  // charge of all processes' unhandled messages that the peer accepts
    std::uint64_t share = 0;    // this process's part of it, if the peer has as many peers as this process
    SenderCredit credit;        // what was sent to it and not handled
    std::deque<caf::strong_actor_ptr> proxies;  // those with blocked messages, in the order of their turns
    std::deque<std::pair<std::uint64_t, Ended>> down_notices;  // by ticket
    std::uint64_t next_ticket = 0;
  } backlog;

  /// For Inbound: the order of what arrives from it.
  struct {
    NumberSet handled;                     // messages, link changes and DOWN notices, by their order number
    std::map<std::uint64_t, Ended> ended;  // DOWN notices by theirs; they wait for everything sent before them
    std::size_t held = 0;                  // messages that wait for others to the same actor
    std::uint64_t refused = 0;             // messages refused for lack of memory since the peer was told
    caf::strong_actor_ptr last_sender;     // a proxy; most messages need no lookup
  } order;

  // For Credits:
  std::shared_ptr<PeerIntake> intake;              // counts its messages here, which keep it alive
  std::vector<std::shared_ptr<EdgeIntake>> edges;  // the same for each actor to which it sends
  std::size_t edges_swept_at = 0;                  // the number of them at which those of ended actors are removed

  std::vector<std::uint64_t> given_back;  // for TensorLoans: tokens that will be sent together
  std::uint32_t calls_there = 0;          // for CallTable: this process's calls without an answer
  std::uint32_t calls_here = 0;           // for CallTable: the peer's calls
};

}  // namespace troupe::remote
