@0xb1a6c47d20f3958e;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

# The data that the processes of a group gather when they join: how to reach each process, and its actors that serve the
# others.
struct Member {
  transport @0 :Data;     # Transport::address()
  actorNode @1 :Data;     # identity of the actor system
  broadcaster @2 :UInt64;     # actor id: forwards broadcasts
  agent @3 :UInt64;     # actor id: spawns actors, keeps the list of members that are still working
  arena @4 :Data;         # ArenaTicket, for processes of the same host; may be empty
}
