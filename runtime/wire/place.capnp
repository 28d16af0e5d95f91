@0xd0c5a3f8b1e24c67;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

# What ranks tell each other once each has its plan: where to reach it and what it shares.
struct Place {
  planHash @0 :UInt64;
  settingsHash @1 :UInt64;
  arena @2 :Data;         # ArenaTicket as it lies in memory: only ranks of one build get this far
  start @3 :Start;        # rank 0's: for all
  deviceMemory @4 :Bool;  # it trains in memory of its device's own
  rows @5 :List(UInt32);  # rank 0's: by rank, of the first steps; empty: equal parts

  # Where the job goes on, and how its checkpoints are called.
  struct Start {
    folder @0 :Text;        # of the checkpoint that it goes on from; empty: from the beginning
    number @1 :UInt32;      # which checkpoint there
    steps @2 :UInt64;
    firstNumber @3 :UInt32; # of this run's checkpoints
    run @4 :Text;           # its name in them
    over @5 :Bool;          # the run that it goes on from was ended by evaluate.patience
  }
}
