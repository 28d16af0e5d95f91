@0xd0c5a3f8b1e24c67;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

# What ranks tell each other once each has its plan: where to reach it and what it shares.
struct Place {
  planHash @0 :UInt64;
  arena @1 :Data;       # ArenaTicket as it lies in memory: only ranks of one build get this far
  transport @2 :Data;   # Transport::address()
  actorNode @3 :Data;   # identity of the actor system
}
