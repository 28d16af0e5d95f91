#pragma once

#include <caf/actor.hpp>
#include <caf/atom.hpp>
#include <caf/fwd.hpp>
#include <caf/message.hpp>
#include <cstdint>
#include <vector>

#include "actors/caf_compatibility.hpp"

// Messages between the broadcasters and agents of a group's processes.
namespace troupe::group {

/// Throws Error{unsupported} if `message`, which will be a part of another message, contains a type that cannot leave
/// this process: CAF would omit it silently.
void check_travels(caf::actor_system& system, const caf::message& message);

/// From a Mesh to its process's broadcaster: send this to all members.
struct Broadcast {
  std::vector<caf::actor> members;
  caf::message what;
  std::uint32_t fan_out = 1;
};

/// From broadcaster to broadcaster: deliver to your actors, and pass it on to the other processes. Answered when all of
/// them have it.
struct Relay {
  std::uint32_t origin = 0;  // the peer that broadcasts, and its number for this broadcast
  std::uint64_t number = 0;
  std::uint64_t done_below = 0;  // all its broadcasts with lower numbers are finished and can be forgotten
  std::uint32_t fan_out = 1;
  std::vector<std::uint32_t> peers;   // the receiver is the first
  std::vector<std::uint32_t> counts;  // how many of `actors` belong to each peer
  std::vector<std::uint64_t> actors;
  caf::message what;
};

/// (Finish, peer, milliseconds): to the agent of peer 0. Answered with Unfinished when all peers have finished, or
/// when the time is over.
using Finish = caf::atom_constant<caf::atom("finish")>;
/// (Leaving, peer): to all other agents: do not wait for that peer. They monitor its agent, then answer; its DOWN
/// message arrives after everything that was sent from there.
using Leaving = caf::atom_constant<caf::atom("leaving")>;
/// (Lost, peer): to the own agent: the bootstrap reports to all processes that this peer has died.
using Lost = caf::atom_constant<caf::atom("lost")>;
/// (Silent, peer, why): to the own agent: heartbeats or the transport found this peer dead. Peer 0's agent sends it
/// to the others, which may never have exchanged messages with that peer.
using Silent = caf::atom_constant<caf::atom("silent")>;
/// (Retire, milliseconds): to the own agent: end the actors that it spawned. Answered with the names of those that
/// still run.
using Retire = caf::atom_constant<caf::atom("retire")>;
/// (Offer, number, what, bytes): to the own agent: this process's part of the all_gather with that number.
using Offer = caf::atom_constant<caf::atom("offer")>;
/// (Gather, number, what): to every agent. Answered with the part of its process for that number, when there is one.
using Gather = caf::atom_constant<caf::atom("gather")>;
/// To itself: the time of a Finish or a Retire is over.
using Overdue = caf::atom_constant<caf::atom("overdue")>;

/// Peers that had not finished: they still run, as far as is known, or they died before.
struct Unfinished {
  std::vector<std::uint32_t> running;
  std::vector<std::uint32_t> lost;
};

TROUPE_MESSAGE_FIELDS(Relay, x.origin, x.number, x.done_below, x.fan_out, x.peers, x.counts, x.actors, x.what)
TROUPE_MESSAGE_FIELDS(Unfinished, x.running, x.lost)

}  // namespace troupe::group

TROUPE_LOCAL_MESSAGE(troupe::group::Broadcast)
