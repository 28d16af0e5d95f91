#pragma once

#include <caf/actor.hpp>
#include <caf/atom.hpp>
#include <caf/fwd.hpp>
#include <caf/message.hpp>
#include <cstdint>
#include <vector>

#include "actors/dialect.hpp"

// What the couriers and stewards of a group's processes tell each other.
namespace troupe::group {

/// Throws Error{unsupported} when `message`, which is to travel inside of another one, has a part that cannot leave
/// this process: CAF would leave it out without a word.
void check_travels(caf::actor_system& system, const caf::message& message);

/// Mesh to its process's courier: pass this to all of them.
struct Broadcast {
  std::vector<caf::actor> members;
  caf::message what;
  std::uint32_t fan_out = 1;
};

/// Courier to courier: deliver to your actors, pass on to the other processes. Answered when all of them have it.
struct Relay {
  std::uint32_t origin = 0;  // the peer that broadcasts, and its number for this
  std::uint64_t number = 0;
  std::uint64_t done_below = 0;  // all its numbers below are dealt with and need not be remembered
  std::uint32_t fan_out = 1;
  std::vector<std::uint32_t> peers;   // the receiver first
  std::vector<std::uint32_t> counts;  // how many of `actors` are of each peer
  std::vector<std::uint64_t> actors;
  caf::message what;
};

/// (Finish, peer, milliseconds): to the steward of peer 0, answered with Unfinished, when nobody is left to wait for or
/// the time is over.
using Finish = caf::atom_constant<caf::atom("finish")>;
/// (Leaving, peer): to all other stewards, nobody need wait for that peer. They watch its steward, then answer; its end
/// comes after everything that was sent from there.
using Leaving = caf::atom_constant<caf::atom("leaving")>;
/// (Lost, peer): to the own steward, the bootstrap says to everyone that this peer has died.
using Lost = caf::atom_constant<caf::atom("lost")>;
/// (Silent, peer, why): to the own steward, heartbeats or the transport found this peer dead; from peer 0's steward to
/// the others, who may never have spoken to that peer.
using Silent = caf::atom_constant<caf::atom("silent")>;
/// (Retire, milliseconds): to the own steward, ends what it spawned; answered with the names of those still there.
using Retire = caf::atom_constant<caf::atom("retire")>;
/// (Offer, number, what, bytes): to the own steward, this process's part of its all_gather of that number.
using Offer = caf::atom_constant<caf::atom("offer")>;
/// (Gather, number, what): to every steward, answered with what its process offers under that number, once it does.
using Gather = caf::atom_constant<caf::atom("gather")>;
/// To itself: the time of a Finish or a Retire is over.
using Overdue = caf::atom_constant<caf::atom("overdue")>;

/// Peers that had not come to their end: they still run, as far as anybody knows, or they died before it.
struct Unfinished {
  std::vector<std::uint32_t> running;
  std::vector<std::uint32_t> lost;
};

template <class Inspector>
auto inspect(Inspector& f, Relay& x) {
  return f(caf::meta::type_name("troupe.group.Relay"), x.origin, x.number, x.done_below, x.fan_out, x.peers, x.counts,
           x.actors, x.what);
}
template <class Inspector>
auto inspect(Inspector& f, Unfinished& x) {
  return f(caf::meta::type_name("troupe.group.Unfinished"), x.running, x.lost);
}

}  // namespace troupe::group

TROUPE_LOCAL_MESSAGE(troupe::group::Broadcast)
