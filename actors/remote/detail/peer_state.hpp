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

/// What every thread counts of the messages to one peer. Outlives the peer's state, as proxies do.
struct Waiting {
  std::atomic<std::uint64_t> messages{0};     // not sent yet
  std::atomic<std::uint64_t> turned_away{0};  // for want of memory or of room in a window
  std::atomic<std::uint64_t> untold{0};       // of these, dropped and not reported yet
};

/// An actor has ended, and why.
struct Ended {
  caf::actor_id actor = 0;
  caf::error reason;
};

/// What this process knows of one other process. Each part is one class's to change, named beside it. Threads: the
/// control lane's, except where it says otherwise. Lives as long as the engine, a lost peer's too.
struct PeerState {
  PeerState(Peer peer, caf::node_id its_node) : number(peer), node(std::move(its_node)) {}

  const Peer number;  // any thread reads it, as the next
  const caf::node_id node;
  const std::shared_ptr<Waiting> waiting = std::make_shared<Waiting>();  // any thread's
  std::atomic<std::uint32_t> proxies_made{0};                            // Proxies'; any thread's
  struct {
    Tally messages_sent, bytes_sent, messages_received, bytes_received, batches_sent, batched_sent, unhandled;
    std::array<Tally, std::tuple_size_v<decltype(PeerCounters::answer_ns_log2)>> answer_ns_log2;
  } counts;  // any thread reads them

  // Engine's.
  bool dead = false;
  bool condemned = false;  // about to be lost: nothing more is taken in
  Status why;              // it is dead
  bool heard = false;      // since the last look at heartbeats; Inbound sets it
  bool spoken_to = false;  // likewise; FrameSender sets it

  /// FrameSender's: a frame that is being filled.
  struct {
    std::vector<std::byte> frame;
    std::uint64_t heads = 0;
  } batch;

  // Outbound's.
  std::uint32_t next_order = 0;  // sequence number of the next message, link change or DOWN notice to this peer
  std::uint64_t next_body = 0;   // number of the next body that goes to it in pieces

  /// Backlog's: what this peer does not take yet. Tickets order messages and DOWN notices among each other.
  struct {
    std::uint64_t offered = 0;  // charge that the peer takes of all processes' messages unhandled
    std::uint64_t share = 0;    // of that this process's part, if there are as many others there as here
    Allowance allowance;        // what is sent to it and not dealt with
    std::deque<caf::strong_actor_ptr> proxies;  // that have messages blocked, in the order of their turns
    std::deque<std::pair<std::uint64_t, Ended>> down_notices;  // by ticket
    std::uint64_t next_ticket = 0;
  } backlog;

  /// Inbound's: the order of what comes from it.
  struct {
    NumberSet dealt_with;                  // messages, link changes and DOWN notices, by their sequence number
    std::map<std::uint64_t, Ended> ended;  // DOWN notices by theirs; they wait for all that was sent before them
    std::size_t held = 0;                  // messages that wait for others to the same actor
    std::uint64_t refused = 0;             // messages, for want of memory, since the peer was told
    caf::strong_actor_ptr last_sender;     // a proxy, so that most messages look up none
  } order;

  // Credits'.
  std::shared_ptr<PeerIntake> intake;              // counts its messages here, kept by them
  std::vector<std::shared_ptr<EdgeIntake>> edges;  // the same for each actor that it sends to

  std::vector<std::uint64_t> given_back;  // TensorLoans': tokens, to be sent together
  std::uint32_t calls_there = 0;          // CallTable's: of this process, without an answer
  std::uint32_t calls_here = 0;           // CallTable's: of the peer
};

}  // namespace troupe::remote
