#pragma once

#include <array>
#include <caf/actor.hpp>
#include <caf/actor_cast.hpp>
#include <caf/atom.hpp>
#include <caf/fwd.hpp>
#include <caf/node_id.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/remote/calls.hpp"
#include "actors/remote/inline_executor.hpp"
#include "actors/remote/tensor.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/lanes/lane_loop.hpp"
#include "runtime/membership/failure_detector.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

class Device;

/// Prepares an actor system for remote actors: a node id, the messages of this library, names for its errors, and a
/// limit to the messages that an actor handles at a time (CAF's `scheduler.max-throughput`). Call it before the system
/// is made, in every process.
void configure_remote(caf::actor_system_config& config);

/// The most unhandled messages that this process may have at one actor of another process: in transit, and in its
/// mailbox without having been looked at (RemoteActors::bound). Answers and exit messages are not counted.
struct Window {
  std::uint32_t messages = 1024;
  std::uint64_t bytes = std::uint64_t{64} << 20;  // of memory at the receiver; one message may exceed the limit
};

/// What happens to a message for which a window has no space.
enum class WhenFull : std::uint8_t {
  error,  // a request is answered out_of_memory; another message is dropped, and RemoteOptions::dropped is called
  drop,   // a request is answered in the same way; other messages are dropped and only counted
};

struct RemoteOptions {
  /// The approximate memory for messages to and from other processes: one half for those that wait here until a peer
  /// accepts them, one half for those of peers that no actor has handled yet. When it is used up, a request is answered
  /// out_of_memory; another message is dropped, and `dropped` is called at its sender. One message may exceed it. 0: an
  /// eighth of the memory of this machine, or of this process's control group.
  std::uint64_t memory_bytes = 0;
  /// The bytes of all others' messages that this process accepts before an actor has looked at them; the rest waits at
  /// the senders. 0: a quarter of memory_bytes.
  std::uint64_t unhandled_bytes = 0;
  /// The most actors of one peer that are known here at once, a few hundred bytes each; a peer with more is lost.
  std::uint32_t max_actors = 1 << 20;
  /// Heartbeats: peers that fall silent are lost. Absent: only others report losses (RemoteActors::lost).
  std::optional<FailureDetectorOptions> heartbeats;
  /// Appended to the reason of a peer that was lost because of silence: the setting of that time. Empty: nothing.
  std::string heartbeats_setting;
  /// Called when a peer falls silent, and when it speaks again before it is declared lost. On the control lane's
  /// thread; must not block.
  std::function<void(Peer peer, bool suspected)> suspected;
  /// Called for a peer that heartbeats or the transport found dead, after its actors' monitors were notified. On the
  /// control lane's thread; must not block.
  std::function<void(Peer peer, const Status& why)> lost;
  /// Whether `peer` has mapped `arena`, so that a tensor in it can be sent by reference. Called on the control lane's
  /// thread, for arenas of this process's address space; must not block. Empty: never.
  std::function<bool(Peer peer, ArenaId arena)> shares;
  /// Called for every message that could not be delivered and is not a request, with the reason. On the control lane's
  /// thread; must not block.
  std::function<void(std::string_view what)> dropped;
  /// An inline actor that uses the control lane's thread for longer, counting only time in which the thread has a core,
  /// delays messages to others. After a few times the scheduler runs it, for a second at first, longer each time that
  /// this happens again soon.
  Clock::duration inline_limit = std::chrono::microseconds{50};
  /// Called each time that an inline actor took longer, with whether it is `moved` now. On the control lane's thread;
  /// must not block.
  std::function<void(caf::actor_id actor, Clock::duration took, bool moved)> slow;
  /// The arenas for payloads get the ids arena_id(self, first_arena ... first_arena + 64).
  std::uint32_t first_arena = 128;
  /// Memory for tensors that arrive by value. A message for which there is none left is refused: its request is
  /// answered out_of_memory. 0: as much as memory_bytes.
  std::uint64_t landing_bytes = 0;
  /// Memory from which bodies of messages are sent, at least 4 MiB; bodies for which there is none left wait.
  std::uint64_t sending_bytes = std::uint64_t{128} << 20;
  /// Copies tensors that are sent by value and lie in memory that only devices can access: piece by piece, by a stream
  /// of its own. It reaches their memory, works in the same address space, and outlives the remote actors. Null,
  /// or a device without such memory: such tensors are refused, `unsupported`.
  Device* device = nullptr;
  /// Pinned memory for these pieces, in units of 1 MiB, at least 4; all of it is taken at the start. A tensor waits for
  /// a free part, so any size is enough; with more, more copies and sends go on at the same time.
  std::uint64_t staging_bytes = std::uint64_t{16} << 20;
};

/// Counted since the start.
struct RemoteCounters {
  std::uint64_t sent = 0;       // messages to other processes
  std::uint64_t delivered = 0;  // messages from other processes, to actors of this one
  std::uint64_t reordered = 0;  // of those, the ones that arrived before their turn
  std::uint64_t dropped = 0;    // messages refused here: unregistered types, unreadable bytes, no memory, full window
};

/// For one peer. Counted since the start, unless "now" is stated.
struct PeerCounters {
  std::uint64_t messages_sent = 0, bytes_sent = 0;          // bytes: heads and payloads
  std::uint64_t messages_received = 0, bytes_received = 0;  // the same
  std::uint64_t batches_sent = 0, batched_sent = 0;         // frames with several small messages, and these messages
  std::uint64_t unhandled = 0;                              // now: sent, and not handled there, as far as it reported
  std::uint64_t waiting = 0;                                // now: not sent yet
  std::uint64_t sends_refused = 0;                          // for lack of memory, or by WhenFull
  /// The time of every 16th request until its answer: how many took 2^i to 2^(i+1) ns.
  std::array<std::uint64_t, 40> answer_ns_log2{};
};

/// Actors of other processes as ordinary CAF handles: requests and their answers, monitors, DOWN messages, tensors.
/// Messages from this process to one actor arrive in the order in which they were sent, whatever their size. If an
/// actor has ended or a process was lost, every outstanding request to it is answered with an error.
///
/// It uses Channel::actors of one transport through its two lanes, and takes their after_round hooks. Construct it, add
/// all peers, and only then start the lanes. Stop it before the lanes are stopped; destroy it after the lanes and the
/// transport, before the actor system and the address space.
class RemoteActors {
 public:
  /// Throws Error{invalid} if the system was made without configure_remote().
  RemoteActors(caf::actor_system& system, AddressSpace& space, LaneLoop& control, LaneLoop& bulk, Peer self,
               RemoteOptions options = {});
  ~RemoteActors();
  RemoteActors(const RemoteActors&) = delete;
  RemoteActors& operator=(const RemoteActors&) = delete;

  /// The identity of this process, for its peers' add_peer().
  std::vector<std::byte> identity() const;
  /// Makes a peer's actors reachable; before the lanes are started. Throws Error{corrupt} if the bytes are not an
  /// identity, Error{invalid} if it is this process's own or that of another peer.
  void add_peer(Peer peer, std::span<const std::byte> identity);
  /// The node that an identity names; throws as add_peer.
  static caf::node_id node_in(std::span<const std::byte> identity);

  /// Makes an actor of this process findable under a name, as long as it lives. A name that is in use is not given
  /// again. Throws Error{invalid} for an empty handle.
  template <class Handle>
  void publish(const std::string& name, const Handle& handle) {
    publish_any(name, caf::actor_cast<caf::strong_actor_ptr>(handle));
  }
  /// The actor that knows the names of `peer` (or of this process). It answers (Find{}, name) with a caf::actor when
  /// the name is published: give the request a time limit. Throws Error{invalid} for a peer that was not added.
  caf::actor directory(Peer peer) const;
  using Find = caf::atom_constant<caf::atom("find")>;
  /// The same for threads that may block. Throws Error{timeout} if the name is not published in time, and
  /// Error{peer_lost}.
  caf::actor resolve(Blocking& blocking, Peer peer, const std::string& name, Deadline deadline);
  /// The handle of an actor with an id that the peer has sent. If the actor has ended, or never existed, requests are
  /// answered with an error and monitors fire. Any thread.
  caf::actor lookup(Peer peer, caf::actor_id actor) const;

  /// Spawns an actor that runs on the control lane's thread: a message from another process reaches it without a change
  /// of threads. For handlers of about a microsecond that never block; see RemoteOptions::slow for others. As
  /// caf::actor_system::spawn: a function with a self pointer, or a class. When this process's remote actors have
  /// ended, the scheduler runs it.
  template <class Function, class... Arguments>
  auto spawn_inline(Function function, Arguments&&... arguments) {
    return troupe::spawn_inline(system(), inline_executor(), std::move(function),
                                std::forward<Arguments>(arguments)...);
  }
  template <class Class, class... Arguments>
  auto spawn_inline(Arguments&&... arguments) {
    return troupe::spawn_inline<Class>(system(), inline_executor(), std::forward<Arguments>(arguments)...);
  }

  /// The address for calls of an actor of any process.
  Callee callee(const caf::actor& actor) const;
  /// Sends a question, and calls `done` with the answer: bypassing the mailboxes of both sides if the actor is a
  /// CallTaker and runs inline, otherwise as a CallMessage. `question`: at most kMostCallBytes. Throws Error{invalid}
  /// for more, and for a peer that was not added. Any thread; on the control lane's it needs no change of threads.
  void call(Callee callee, std::span<const std::byte> question, CallDone& done);

  /// Posts `memory`, of this address space, for the next tensor in a message from another process whose sender named
  /// `key` (Tensor::into). The buffers of one key are used in the order of posting, once each. The tensor is stored
  /// from the buffer's start on. `owner` is dropped when the last copy of that tensor is destroyed, or the buffer is
  /// withdrawn. A tensor is stored in the pool instead, as Tensor::memory() shows, if no buffer is posted, if it is
  /// larger than the next buffer, or if its message has other tensors whose bytes are sent; by reference it is not
  /// stored at all. Throws Error{invalid} for key 0 and memory that is not mapped, Error{unsupported} for memory from
  /// which the transport cannot send. Any thread.
  void post_sink(SinkKey key, Memory memory, std::shared_ptr<const void> owner = nullptr);
  /// Withdraws the buffers of a key that are not being filled; returns their number. Any thread.
  std::size_t withdraw_sinks(SinkKey key);

  /// Sets a window for one actor of another process: `when_full` decides what happens to messages of this process for
  /// which it has no space. A send never waits: for back-pressure a sender asks window_watcher(), or calls
  /// wait_for_space(). Without a window only RemoteOptions::memory_bytes limits unhandled messages. Throws
  /// Error{invalid} for an actor that does not belong to another process. Any thread.
  void bound(const caf::actor& remote, Window window, WhenFull when_full = WhenFull::error);
  /// Waits while that actor's window is full, and then until half of it is free. Returns at once for an actor without a
  /// window, and for one that has ended. Other senders may take the space before the caller does. Throws
  /// Error{timeout}, and Error{invalid} as bound().
  void wait_for_space(Blocking& blocking, const caf::actor& remote, Deadline deadline);
  /// The same for handlers, which must not block: this actor answers (WantSpace{}, handle) with an empty message as
  /// soon as half of that actor's window is free; at once for an actor without a window; with an error if that actor
  /// has ended.
  caf::actor window_watcher() const;
  using WantSpace = caf::atom_constant<caf::atom("wantspace")>;

  /// Reports that `peer` is lost; any thread, any number of times. Its lanes are fenced. Outstanding and later requests
  /// to it are answered with `why`; monitors of its actors fire with `why`.
  void lost(Peer peer, const Status& why);
  /// Sends what still waits, then ends: proxies end, outstanding requests are answered `aborted`. False if the deadline
  /// passed before everything was sent. The lanes must be running.
  bool stop(Blocking& blocking, Deadline deadline);
  RemoteCounters counters() const noexcept;
  /// Throws Error{invalid} for a peer that was not added. Any thread.
  PeerCounters counters(Peer peer) const;
  /// For people, some lines: each peer's counters; the actors that peers know, with their mailboxes; requests that wait
  /// for an answer. Throws Error{timeout} if the control lane does not answer, Error{aborted} if it has ended.
  std::string describe(Blocking& blocking, Deadline deadline) const;

 private:
  caf::actor_system& system() const noexcept;
  std::shared_ptr<InlineExecutor> inline_executor() const noexcept;
  void publish_any(const std::string& name, caf::strong_actor_ptr actor);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe
