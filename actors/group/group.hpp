#pragma once

#include <caf/actor.hpp>
#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>
#include <caf/atom.hpp>
#include <caf/expected.hpp>
#include <caf/fwd.hpp>
#include <caf/message.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "actors/group/mesh.hpp"
#include "actors/group/registration.hpp"
#include "actors/remote/remote_actors.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/lanes/lane_loop.hpp"
#include "runtime/lanes/transport.hpp"
#include "runtime/memory/arena.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace troupe {

class Group;

/// Where a group's transport is to stand.
struct TransportSite {
  AddressSpace& space;
  Peer self;
  const std::vector<Hello>& hellos;  // of all processes, by peer
};

/// `given` with what a process says of itself wherever it is: rank, versions but UCX's, message types, pid and
/// namespace, and, where they are empty, the identity of its node and the name of its host.
Hello own_hello(Hello given, const LaunchPlace& place, const caf::actor_system_config& config);

struct GroupOptions {
  /// From launch_place_from_environment(), or by hand; absent: a group of this process alone, without any transport.
  std::optional<LaunchPlace> place;
  /// Of joining. Absent: 60 s from the call of join().
  std::optional<Deadline> deadline;
  /// Makes the transport, which every process must make alike; called once, when all have found each other.
  std::function<std::unique_ptr<Transport>(const TransportSite&)> make_transport;
  /// What this process says of itself; own_hello() fills in the rest.
  Hello hello;
  LaneOptions control;
  LaneOptions bulk;
  /// Where it does not say what to do with messages that cannot be delivered and have nobody to answer to, they are
  /// reported on stderr. Who falls silent for 10 s is lost, unless it says otherwise in `heartbeats`.
  RemoteOptions remote;
  /// False: no heartbeats; a process that is stopped, or cut off without a word, is never lost.
  bool heartbeats = true;
  /// Outlives the group; absent: it has one of its own.
  AddressSpace* space = nullptr;
  /// Size of an arena for this process's tensors (Group::arena); 0: none. Processes of the same host, pid namespace and
  /// user map it, so that those tensors go there by reference; to others their bytes are sent. All of it is taken from
  /// the machine's memory at once.
  std::uint64_t arena_bytes = 0;
  /// Told every 5 s which processes are missing, while joining.
  std::function<void(const std::string&)> waiting;
  /// Told once of each process that died or fell silent, whoever found out, after its actors' monitors were; not of
  /// those that left. While this process is in its stop(), heartbeats and the transport only tell the report. On a
  /// thread of the group; must not block.
  Bootstrap::Lost lost;

  /// The job at `place`, where this process has joined it already: its hellos are the group's, and `hello` and
  /// `waiting` are not looked at. Absent: join() joins it.
  std::unique_ptr<Bootstrap> joined;
};

/// How a group ended for this process.
struct StopReport {
  bool drained = true;              // everything that was sent from here has left
  std::vector<Peer> running;        // processes that had not come to their stop() by the deadline
  std::vector<Peer> lost;           // processes that died, or fell silent, before they came to it
  std::vector<std::string> actors;  // spawned here by spawn_at, asked to end, and still running: type and id
  bool clean() const noexcept { return drained && running.empty() && lost.empty() && actors.empty(); }
  /// For people: "not stopped in time: peer 1, peer 2; ..."; "everything finished".
  std::string text() const;
};

/// This process's membership in a group of processes whose actors reach each other: found by the bootstrap, connected
/// by a transport. It owns two threads for the lanes and one that watches the other processes, but no actor system.
/// Threads: any, except where a member of this class says otherwise; destroyed before the actor system.
class Group {
 public:
  /// Waits for all processes of the job. `system` was made from a configuration given to configure_group(), outlives
  /// the group, and is in no other. Throws Error as Bootstrap::join, as make_transport, and Error{invalid} when the
  /// options or the system are not fit.
  static std::unique_ptr<Group> join(Blocking& blocking, caf::actor_system& system, GroupOptions options);
  /// The same over UCX, at the place that the environment gives. The library troupe::group_ucx defines it: link that.
  static std::unique_ptr<Group> join(Blocking& blocking, caf::actor_system& system);
  /// Without stop() or leave() before it, the others count this process as lost: it met an error.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  Peer self() const noexcept;
  /// Processes, this one included; peers are numbered from 0.
  std::uint32_t size() const noexcept;

  /// Makes an actor of this process findable under a name, as long as it lives. A name is given once; the first stays.
  template <class Handle>
  void publish(const std::string& name, const Handle& handle) {
    remote().publish(name, handle);
  }
  /// The actor with that name at `peer`, waiting until it is published. Throws Error{timeout} and Error{peer_lost}
  /// with the name and who was asked, Error{invalid} for a peer that is none.
  caf::actor lookup(Blocking& blocking, Peer peer, const std::string& name, Deadline deadline);
  /// The same at whichever process has it first.
  caf::actor lookup(Blocking& blocking, const std::string& name, Deadline deadline);
  /// The same as a caf::typed_actor. As the others, it throws Error{unsupported} when the actor does not take what the
  /// handle says: a typed actor is not handed out as a caf::actor, nor the other way round. (Of an actor that a third
  /// process has, published here, this is not known.)
  template <class Handle>
  Handle lookup(Blocking& blocking, Peer peer, const std::string& name, Deadline deadline) {
    return caf::actor_cast<Handle>(
        lookup_as(blocking, peer, name, system().template message_types<Handle>(), deadline));
  }
  /// The actors that every process published under this name, asked for at once, as a mesh {peer: size()}. Throws as
  /// the first does, naming every process that lacks it.
  Mesh lookup_all(Blocking& blocking, const std::string& name, Deadline deadline);

  /// Spawns an actor at `peer` (this process too) of a type that was registered there by register_actor(). It lives
  /// until it quits, is told to, or that process stops, whoever holds handles. Throws Error{unsupported} when the type
  /// is not registered there or makes typed actors, or an argument's type is not registered here; Error{invalid} when
  /// the type takes other arguments, or its constructor threw; Error{timeout} (the actor may come to be nevertheless);
  /// Error{peer_lost}.
  caf::actor spawn_at(Blocking& blocking, Peer peer, const std::string& type, const caf::message& args,
                      Deadline deadline);
  template <class... Args>
  caf::actor spawn_at(Blocking& blocking, Peer peer, const std::string& type, Deadline deadline, Args&&... args) {
    return spawn_at(blocking, peer, type, caf::make_message(std::forward<Args>(args)...), deadline);
  }
  /// The same for handles of any kind, with errors as values and as CAF's own actor_system::spawn has them:
  /// sec::unknown_type, sec::cannot_spawn_actor_from_arguments, sec::unexpected_actor_messaging_interface when the
  /// type's actors do not take what the handle says; else those that a request is answered with. Throws Error{invalid}
  /// for a peer that is none.
  template <class Handle = caf::actor, class... Args>
  caf::expected<Handle> try_spawn_at(Blocking& blocking, Peer peer, const std::string& type, Deadline deadline,
                                     Args&&... args) {
    auto made = try_spawn_as(blocking, peer, type, caf::make_message(std::forward<Args>(args)...),
                             system().template message_types<Handle>(), deadline);
    if (!made) return std::move(made.error());
    return caf::actor_cast<Handle>(std::move(*made));
  }
  /// For actors, which may not block: the actor that spawns at `peer`. It answers (Spawn{}, type, arguments as one
  /// caf::message) with a caf::actor, or an error as above; with the message types of a typed handle
  /// (caf::actor_system::message_types) behind them as try_spawn_at. RemoteActors::directory() is the same for names.
  /// Throws Error{invalid} for a peer that is none; empty when the group has ended.
  caf::actor spawner(Peer peer) const;
  using Spawn = caf::atom_constant<caf::atom("spawn")>;

  /// Everyone's bytes, by peer. Collective: every process calls it equally often, with the same `what`, and from one
  /// thread at a time. Throws Error{invalid} with both when a process does something else, Error{timeout} and
  /// Error{peer_lost} with `what` and who was asked.
  std::vector<std::vector<std::byte>> all_gather(Blocking& blocking, const std::string& what,
                                                 std::span<const std::byte> mine, Deadline deadline);

  /// Tells of every process that is lost, as GroupOptions::lost, also of those lost before, until this object ends. The
  /// group outlives it.
  class LossListener;
  std::unique_ptr<LossListener> listen(Bootstrap::Lost lost);
  /// Destroys `parts` after the lanes and the transport: what they may still be told of. In the order of keeping, the
  /// last first.
  void keep(std::shared_ptr<void> parts);
  /// How often it was called: the same at all processes that call it equally often, from 1.
  std::uint32_t next_number() noexcept;

  /// Ends the membership together with the others: waits until every process has come to its stop(), has left or is
  /// lost, or the deadline passed, then does as leave(). Never takes longer than the deadline and two seconds. The
  /// second call returns what the first did. One caller at a time.
  StopReport stop(Blocking& blocking, Deadline deadline);
  /// Ends the membership of this process alone: actors spawned here for others are asked to end, what was sent is
  /// sent, handles of other processes' actors end, and nobody counts this process as lost; for who still holds handles
  /// of its actors they end with peer_lost, "has left". Peer 0 should be the last: others hear of deaths through it.
  StopReport leave(Blocking& blocking, Deadline deadline);

  caf::actor_system& system() const noexcept;
  AddressSpace& space() const noexcept;
  /// That of GroupOptions::arena_bytes; it lives as long as the address space. Throws Error{invalid} without one.
  Arena& arena() const;
  RemoteActors& remote() const noexcept;
  Transport& transport() const noexcept;
  LaneLoop& control() const noexcept;
  LaneLoop& bulk() const noexcept;
  /// By peer, this one's included.
  const std::vector<Hello>& hellos() const noexcept;

 private:
  caf::actor lookup_as(Blocking& blocking, Peer peer, const std::string& name, const std::set<std::string>& takes,
                       Deadline deadline);
  caf::expected<caf::actor> try_spawn_as(Blocking& blocking, Peer peer, const std::string& type,
                                         const caf::message& args, const std::set<std::string>& takes,
                                         Deadline deadline);
  struct State;
  explicit Group(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// See Group::listen().
class Group::LossListener {
 public:
  virtual ~LossListener() = default;
};

}  // namespace troupe
