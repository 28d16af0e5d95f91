@0xd0c5a3f8b1e24c67;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

# The data that ranks gather after each has made its plan: how to reach each rank, and what it shares.
struct Place {
  planHash @0 :UInt64;
  settingsHash @1 :UInt64;
  arena @2 :Data;         # the bytes of an ArenaTicket: only ranks of the same build get this far
  start @3 :Start;        # rank 0's, which is valid for all
  deviceMemory @4 :Bool;  # it trains in its device's own memory
  rows @5 :List(UInt32);  # rank 0's: by rank, for the first steps; empty: equal shares
  ncclIds @6 :List(Data); # of rank 0 or of nodes' leaders: of each group, if the plan uses NCCL

  # The position from which the job continues, and the names of its checkpoints.
  struct Start {
    folder @0 :Text;        # of the checkpoint from which it continues; empty: it begins at step 0
    number @1 :UInt32;      # number of that checkpoint
    steps @2 :UInt64;
    firstNumber @3 :UInt32; # number of this run's first checkpoint
    run @4 :Text;           # this run's name in its checkpoints
    over @5 :Bool;          # the run from which it continues was ended by evaluate.patience
  }
}
