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

class Device;
class Group;

/// What make_transport gets.
struct TransportContext {
  AddressSpace& space;
  Peer self;
  const std::vector<Hello>& hellos;  // of all processes, by peer
};

/// `given` with the facts that every process reports in the same way: rank, versions except UCX's, message types, pid
/// and namespace, and, if they are empty, the identity of its node and the name of its host.
Hello own_hello(Hello given, const LaunchPlace& place, const caf::actor_system_config& config);

struct GroupOptions {
  /// From launch_place_from_environment(), or set by hand; absent: a group of only this process, without a transport.
  std::optional<LaunchPlace> place;
  /// For joining. Absent: 60 s after the call of join().
  std::optional<Deadline> deadline;
  /// Makes the transport; it must be of the same kind in every process. Called once, when all processes are connected.
  std::function<std::unique_ptr<Transport>(const TransportContext&)> make_transport;
  /// What this process reports about itself; own_hello() fills in the rest.
  Hello hello;
  LaneOptions control;
  LaneOptions bulk;
  /// If `dropped` is empty, messages that cannot be delivered, and are not requests, are reported on stderr. A process
  /// that is silent for 10 s is lost, unless `heartbeats` says otherwise.
  RemoteOptions remote;
  /// False: no heartbeats; a process that is stopped, or cut off without an error, is never lost.
  bool heartbeats = true;
  /// Outlives the group; null: the group has its own.
  AddressSpace* space = nullptr;
  /// Size of an arena for this process's tensors (Group::arena); 0: none. Processes with the same host, pid namespace
  /// and user map it, so tensors in it are sent to them by reference; to others their bytes are sent. All of its memory
  /// is taken from the machine at once.
  std::uint64_t arena_bytes = 0;
  /// Where tensors of this process that never leave a device may lie; its address space is `space`, and it outlives the
  /// group. Null: none. Processes of the same host whose devices are of the same kind import each other's memory; for
  /// others the device copies tensors out (RemoteOptions::device).
  Device* device = nullptr;
  /// Size of `device`'s memory for this process's tensors (Group::device_memory); 0: none.
  std::uint64_t device_bytes = 0;
  /// Called every 5 s while joining, with the processes that are missing.
  std::function<void(const std::string&)> waiting;
  /// Called once for each process that died or fell silent, whoever found out, after the monitors of its actors; not
  /// for processes that leave. While this process is in stop(), losses found by heartbeats and the transport are only
  /// in the report. Called on a thread of the group; must not block.
  Bootstrap::Lost lost;

  /// The job at `place`, if this process has joined it already: its hellos are the group's, and `hello` and `waiting`
  /// are not used. Null: join() joins it.
  std::unique_ptr<Bootstrap> joined;
};

/// How a group ended for this process.
struct StopReport {
  bool drained = true;              // all messages from here have been sent
  std::vector<Peer> running;        // processes that had not called stop() by the deadline
  std::vector<Peer> lost;           // processes that died, or fell silent, before they called it
  std::vector<std::string> actors;  // actors spawned here by spawn_at that were asked to end and still run: type and id
  bool clean() const noexcept { return drained && running.empty() && lost.empty() && actors.empty(); }
  /// For people: "not stopped in time: peer 1, peer 2; ..."; "everything finished".
  std::string text() const;
};

/// This process's membership in a group of processes whose actors reach each other. The processes are connected by the
/// bootstrap, their actors by a transport. It owns two threads for the lanes and one that watches the other processes,
/// but no actor system. Threads: any, unless a member of this class says otherwise; it must be destroyed before the
/// actor system.
class Group {
 public:
  /// Waits for all processes of the job. `system` was made from a configuration that was given to configure_group(),
  /// outlives the group, and is not in another group. Throws Error as Bootstrap::join and make_transport do, and
  /// Error{invalid} if the options or the system are not suitable.
  static std::unique_ptr<Group> join(Blocking& blocking, caf::actor_system& system, GroupOptions options);
  /// The same over UCX, at the place that the environment gives. It is in the library troupe::group_ucx: link that.
  static std::unique_ptr<Group> join(Blocking& blocking, caf::actor_system& system);
  /// Without stop() or leave() before, the other processes count this one as lost.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  Peer self() const noexcept;
  /// Number of processes, including this one; peers are numbered from 0.
  std::uint32_t size() const noexcept;

  /// Makes an actor of this process findable under a name, as long as it lives. A name that is in use is not given
  /// again. Throws Error{invalid} for an empty handle.
  template <class Handle>
  void publish(const std::string& name, const Handle& handle) {
    remote().publish(name, handle);
  }
  /// Waits for, and returns, the actor with that name at `peer`. Throws Error{timeout} and Error{peer_lost} with the
  /// name and the peer, Error{invalid} if there is no such peer.
  caf::actor lookup(Blocking& blocking, Peer peer, const std::string& name, Deadline deadline);
  /// The same at whichever process publishes the name first.
  caf::actor lookup(Blocking& blocking, const std::string& name, Deadline deadline);
  /// The same as a caf::typed_actor. Like the others, it throws Error{unsupported} if the actor does not accept the
  /// messages of the handle: a typed actor is not returned as a caf::actor, nor the other way round. (For an actor of a
  /// third process that is published here this is not checked.)
  template <class Handle>
  Handle lookup(Blocking& blocking, Peer peer, const std::string& name, Deadline deadline) {
    return caf::actor_cast<Handle>(
        lookup_as(blocking, peer, name, system().template message_types<Handle>(), deadline));
  }
  /// The actors that all processes published under this name, all asked at the same time, as a mesh {peer: size()}.
  /// Throws as the first lookup does, naming every process without one.
  Mesh lookup_all(Blocking& blocking, const std::string& name, Deadline deadline);

  /// Spawns an actor at `peer` (also this process) of a type that was registered there by register_actor(). It lives
  /// until it quits, is asked to end, or its process stops, whether or not handles exist. Throws Error{unsupported} if
  /// the type is not registered there or makes typed actors, or if an argument's type is not registered here;
  /// Error{invalid} if the type takes other arguments, or its constructor threw; Error{timeout} (the actor may still be
  /// spawned); Error{peer_lost}.
  caf::actor spawn_at(Blocking& blocking, Peer peer, const std::string& type, const caf::message& args,
                      Deadline deadline);
  template <class... Args>
  caf::actor spawn_at(Blocking& blocking, Peer peer, const std::string& type, Deadline deadline, Args&&... args) {
    return spawn_at(blocking, peer, type, caf::make_message(std::forward<Args>(args)...), deadline);
  }
  /// The same for handles of any kind. Errors are values, as those of actor_system::spawn: sec::unknown_type,
  /// sec::cannot_spawn_actor_from_arguments, sec::unexpected_actor_messaging_interface if the type's actors do not
  /// accept the messages of the handle; otherwise those of a request. Throws Error{invalid} if there is no such peer.
  template <class Handle = caf::actor, class... Args>
  caf::expected<Handle> try_spawn_at(Blocking& blocking, Peer peer, const std::string& type, Deadline deadline,
                                     Args&&... args) {
    auto made = try_spawn_as(blocking, peer, type, caf::make_message(std::forward<Args>(args)...),
                             system().template message_types<Handle>(), deadline);
    if (!made) return std::move(made.error());
    return caf::actor_cast<Handle>(std::move(*made));
  }
  /// For actors, which must not block: the actor that spawns at `peer`. It answers (Spawn{}, type, arguments as one
  /// caf::message) with a caf::actor, or an error as above; with the message types of a typed handle
  /// (caf::actor_system::message_types) as a fourth part it answers as try_spawn_at. RemoteActors::directory() is the
  /// same for names. Throws Error{invalid} if there is no such peer; empty after the group has ended.
  caf::actor spawner(Peer peer) const;
  using Spawn = caf::atom_constant<caf::atom("spawn")>;

  /// The bytes of all processes, by peer. Collective: every process must call it the same number of times, with the
  /// same `what`, and from one thread at a time. Throws Error{invalid} with both texts if a process gathers something
  /// else, Error{timeout} and Error{peer_lost} with `what` and the peer.
  std::vector<std::vector<std::byte>> all_gather(Blocking& blocking, const std::string& what,
                                                 std::span<const std::byte> mine, Deadline deadline);

  /// Reports every lost process, as GroupOptions::lost does, including those lost before, until this object is
  /// destroyed. The group outlives it.
  class LossListener;
  std::unique_ptr<LossListener> listen(Bootstrap::Lost lost);
  /// Destroys `parts` after the lanes and the transport, which may still use them. Several are destroyed in reverse
  /// order.
  void keep(std::shared_ptr<void> parts);
  /// For a session, which has the transport's exchange channel and the collective calls to itself: until the result is
  /// destroyed, further calls in this process throw Error{invalid}.
  std::shared_ptr<void> begin_session();
  /// The number of this call, from 1 on: the same at all processes that call it equally often.
  std::uint32_t next_number() noexcept;

  /// Ends the membership together with the others: waits until every process has called stop(), has left or is lost, or
  /// until the deadline; then does the same as leave(). It takes at most two seconds longer than the deadline. A second
  /// call returns the result of the first. One caller at a time.
  StopReport stop(Blocking& blocking, Deadline deadline);
  /// Ends the membership of this process alone: actors spawned here for others are asked to end, messages are sent,
  /// handles of other processes' actors end, and no process counts this one as lost. For processes that still have
  /// handles of its actors, these end with peer_lost, "has left". Peer 0 should be the last: it reports deaths to the
  /// others.
  StopReport leave(Blocking& blocking, Deadline deadline);

  caf::actor_system& system() const noexcept;
  AddressSpace& space() const noexcept;
  /// The arena of GroupOptions::arena_bytes; it lives as long as the address space. Throws Error{invalid} if there is
  /// none.
  Arena& arena() const;
  /// GroupOptions::device_bytes of memory, of the kind in which the device works fastest. A tensor in it is sent by
  /// reference to a process that has imported it, and copied for others. Throws Error{invalid} if there is none.
  Memory device_memory() const;
  RemoteActors& remote() const noexcept;
  Transport& transport() const noexcept;
  LaneLoop& control() const noexcept;
  LaneLoop& bulk() const noexcept;
  /// By peer, including this one's.
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
