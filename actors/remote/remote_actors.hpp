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
#include "actors/remote/inline_home.hpp"
#include "actors/remote/tensor.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/lanes/lane_loop.hpp"
#include "runtime/membership/failure_detector.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

/// What an actor system needs to have remote actors: a node id, the messages of this library, names for its errors,
/// and a limit to what an actor handles at a time (CAF's `scheduler.max-throughput`). Before the system is made, in
/// every process.
void configure_remote(caf::actor_system_config& config);

/// How many messages of this process one actor of another process may have unhandled at most: on their way, and in its
/// mailbox without having been looked at (RemoteActors::bound). Answers and orders to end are not counted.
struct Window {
  std::uint32_t messages = 1024;
  std::uint64_t bytes = std::uint64_t{64} << 20;  // as they take up memory there; one message may exceed what is left
};

/// What becomes of a message for which a window has no room.
enum class WhenFull : std::uint8_t {
  error,  // a request is answered out_of_memory; another message is dropped, and RemoteOptions::dropped told
  drop,   // a request is answered so too; other messages are dropped without a word, only counted
};

struct RemoteOptions {
  /// Memory for messages to and from other processes, about: half of it for those that wait here until a peer takes
  /// them, half for those of peers that no actor has handled yet. Beyond it a request is answered out_of_memory;
  /// another message is dropped, and `dropped` told at its sender. One message may exceed it. 0: an eighth of what this
  /// machine, or the control group of this process, has.
  std::uint64_t memory_bytes = 0;
  /// What this process takes of all others' messages that no actor has looked at yet; the rest waits with the senders.
  /// 0: a quarter of memory_bytes.
  std::uint64_t unhandled_bytes = 0;
  /// Actors of one peer that are known here at once, a few hundred bytes each; a peer that makes more known is lost.
  std::uint32_t max_actors = 1 << 20;
  /// Heartbeats: peers that fall silent are lost. Absent: only others' words count (RemoteActors::lost).
  std::optional<FailureDetectorOptions> heartbeats;
  /// Ends the reason of a peer that was lost to silence: where people set that time. Empty: nothing.
  std::string heartbeats_setting;
  /// Told when a peer falls silent, and when it speaks again, before heartbeats give it up. On the control lane's
  /// thread; must not block.
  std::function<void(Peer peer, bool suspected)> suspected;
  /// Told of a peer that heartbeats or the transport found dead, when its actors' monitors have been told. On the
  /// control lane's thread; must not block.
  std::function<void(Peer peer, const Status& why)> lost;
  /// Whether `peer` has mapped `arena`, so that a tensor in it can go there by reference. Asked on the control lane's
  /// thread, for arenas of this process's address space; must not block. Empty: never.
  std::function<bool(Peer peer, ArenaId arena)> shares;
  /// Told of every message that could not be delivered and had nobody to answer to, with the reason. Called on the
  /// control lane's thread; must not block.
  std::function<void(std::string_view what)> dropped;
  /// An inline actor that keeps the control lane's thread for longer, in time that it has a core, holds up what arrives
  /// for others. After a few times the scheduler takes it over, for a second at first, longer each time that this
  /// happens again soon.
  Clock::duration inline_limit = std::chrono::microseconds{50};
  /// Told each time that an inline actor took longer, and whether it is `moved` now. On the control lane's thread; must
  /// not block.
  std::function<void(caf::actor_id actor, Clock::duration took, bool moved)> slow;
  /// The arenas for payloads get the ids arena_id(self, first_arena ... first_arena + 63).
  std::uint32_t first_arena = 128;
  /// Memory for tensors that arrive by value. A message for which none is left is refused: its request is answered
  /// out_of_memory. 0: as much as memory_bytes.
  std::uint64_t landing_bytes = 0;
  /// Memory through which bodies of messages leave, at least 4 MiB; those that find none left wait.
  std::uint64_t sending_bytes = std::uint64_t{128} << 20;
};

/// Counted since the start.
struct RemoteCounters {
  std::uint64_t sent = 0;       // messages to other processes
  std::uint64_t delivered = 0;  // messages from other processes, to actors of this one
  std::uint64_t reordered = 0;  // of those, such as arrived before their turn
  std::uint64_t dropped = 0;    // messages refused here: unregistered types, unreadable bytes, no memory, no room
};

/// Of one peer. Numbers are counted since the start, except where it says now.
struct PeerCounters {
  std::uint64_t messages_sent = 0, bytes_sent = 0;          // bytes: heads and what lies behind them
  std::uint64_t messages_received = 0, bytes_received = 0;  // the same
  std::uint64_t batches_sent = 0, batched_sent = 0;         // frames of several small messages, and these
  std::uint64_t unhandled = 0;                              // now: sent, and not handled there, as far as it told
  std::uint64_t waiting = 0;                                // now: not sent yet
  std::uint64_t turned_away = 0;                            // for want of memory, or by WhenFull
  /// Every 16th request's time until its answer: how many took 2^i to 2^(i+1) ns.
  std::array<std::uint64_t, 40> answer_ns_log2{};
};

/// Actors of other processes as ordinary CAF handles: requests and their answers, monitors, down messages, tensors.
/// Messages from this process to one actor arrive in the order in which they were sent, whatever their size. An actor
/// that ended and a process that was lost answer every outstanding request with an error.
///
/// It drives the Channel::actors of one transport through its two lanes, whose after_round hooks it takes. Made, told
/// of all its peers, and only then the lanes are started; stopped before they are stopped; destroyed after them and the
/// transport, before the actor system and the address space.
class RemoteActors {
 public:
  /// Throws Error{invalid} when the system was made without configure_remote().
  RemoteActors(caf::actor_system& system, AddressSpace& space, LaneLoop& control, LaneLoop& bulk, Peer self,
               RemoteOptions options = {});
  ~RemoteActors();
  RemoteActors(const RemoteActors&) = delete;
  RemoteActors& operator=(const RemoteActors&) = delete;

  /// Who this process is, for its peers' add_peer().
  std::vector<std::byte> identity() const;
  /// Makes a peer's actors reachable; before the lanes are started. Throws Error{corrupt} when the identity is none,
  /// Error{invalid} when it is this process's own or that of another peer.
  void add_peer(Peer peer, std::span<const std::byte> identity);
  /// The node that an identity names; throws as add_peer.
  static caf::node_id node_in(std::span<const std::byte> identity);

  /// Makes an actor of this process findable under a name, as long as it lives. A name is given once; the first stays.
  template <class Handle>
  void publish(const std::string& name, const Handle& handle) {
    publish_any(name, caf::actor_cast<caf::strong_actor_ptr>(handle));
  }
  /// The actor that knows the names of `peer` (this process's own included). It answers (Find{}, name) with a
  /// caf::actor, as soon as the name is published: give the request a timeout. Throws Error{invalid} for a peer that
  /// was not added.
  caf::actor directory(Peer peer) const;
  using Find = caf::atom_constant<caf::atom("find")>;
  /// The same for those who may block. Throws Error{timeout} when the name is not published in time, and
  /// Error{peer_lost}.
  caf::actor resolve(Blocking& blocking, Peer peer, const std::string& name, Deadline deadline);
  /// The handle of an actor whose id that peer gave away. If it has ended, or never was, requests are answered with an
  /// error and monitors fire. Any thread.
  caf::actor lookup(Peer peer, caf::actor_id actor) const;

  /// Spawns an actor that runs on the control lane's thread: a message from another process reaches it without a change
  /// of threads. For handlers of a microsecond or so that never block; see RemoteOptions::slow for others. As
  /// caf::actor_system::spawn: a function with a self pointer, or a class. When this process's remote actors have ended
  /// it goes on in the scheduler.
  template <class Function, class... Arguments>
  auto spawn_inline(Function function, Arguments&&... arguments) {
    return troupe::spawn_inline(system(), inline_home(), std::move(function), std::forward<Arguments>(arguments)...);
  }
  template <class Class, class... Arguments>
  auto spawn_inline(Arguments&&... arguments) {
    return troupe::spawn_inline<Class>(system(), inline_home(), std::forward<Arguments>(arguments)...);
  }

  /// Whom to call, for an actor of any process.
  Callee callee(const caf::actor& actor) const;
  /// Asks it something that `done` is told the answer to: past the mailboxes of both sides where the actor is a
  /// CallTaker and runs inline, as a CallMessage elsewhere. `question`: at most kMostCallBytes. Throws Error{invalid}
  /// for more, and for a peer that was not added. Any thread; without a change of threads on the control lane's.
  void call(Callee callee, std::span<const std::byte> question, CallDone& done);

  /// Lays out `memory`, of this address space, for the next tensor that a message from another process brings and whose
  /// sender named `key` (Tensor::into). The buffers of one key are used in the order of posting, once each: what lands
  /// in one starts where it starts, and `owner` is dropped when the last copy of that tensor ends, or the buffer is
  /// withdrawn. A tensor lands in the pool instead, where Tensor::memory() tells it, when no buffer is posted, when it
  /// is larger than the next one, or when it shares its message with others whose bytes are sent; by reference it does
  /// not land at all. Throws Error{invalid} for key 0 and memory that is not mapped, Error{unsupported} for memory that
  /// the transport does not carry. Any thread.
  void post_sink(SinkKey key, Memory memory, std::shared_ptr<const void> owner = nullptr);
  /// Takes back the buffers of a key that nothing is landing in; how many. Any thread.
  std::size_t withdraw_sinks(SinkKey key);

  /// Sets a window for one actor of another process: `when_full` decides what becomes of messages of this process for
  /// which it has no room. A send never waits: whoever wants to be slowed down asks rooms(), or wait_for_room().
  /// Without a window only RemoteOptions::memory_bytes bounds what is under way. Throws Error{invalid} for an actor
  /// that is none of another process. Any thread.
  void bound(const caf::actor& remote, Window window, WhenFull when_full = WhenFull::error);
  /// Waits while that actor's window is full, and then until half of it is free. Returns at once for an actor without a
  /// window, and for one that has ended. Others may take the room before the caller does. Throws Error{timeout}, and
  /// Error{invalid} as bound().
  void wait_for_room(Blocking& blocking, const caf::actor& remote, Deadline deadline);
  /// The same for handlers, which must not block: this actor answers (WantRoom{}, handle), with nothing, as soon
  /// as half of that actor's window is free; at once for an actor without a window; with an error when that actor has
  /// ended.
  caf::actor rooms() const;
  using WantRoom = caf::atom_constant<caf::atom("want_room")>;

  /// Tells that `peer` is gone, by whoever found out; any thread, any number of times. Its lanes are fenced,
  /// outstanding requests to it are answered with `why`, and so are later ones; monitors of its actors fire with `why`.
  void lost(Peer peer, const Status& why);
  /// Sends what was to be sent, then ends: proxies end, outstanding requests are answered `aborted`. False when the
  /// deadline passed before everything was sent. The lanes must be running.
  bool stop(Blocking& blocking, Deadline deadline);
  RemoteCounters counters() const noexcept;
  /// Throws Error{invalid} for a peer that was not added. Any thread.
  PeerCounters counters(Peer peer) const;
  /// For people, some lines: each peer's counters; the actors that peers know, with their mailboxes; requests that wait
  /// for an answer. Throws Error{timeout} when the control lane does not answer, Error{aborted} when it has ended.
  std::string describe(Blocking& blocking, Deadline deadline) const;

 private:
  caf::actor_system& system() const noexcept;
  std::shared_ptr<InlineHome> inline_home() const noexcept;
  void publish_any(const std::string& name, caf::strong_actor_ptr actor);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe
