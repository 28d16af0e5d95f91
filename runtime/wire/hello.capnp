@0xb7a4e21f90c3d586;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

# The description of a process: each process sends it to rank 0 after both have proved that they know the secret; rank 0
# sends all of them on.
struct Hello {
  rank @0 :UInt32;
  worldSize @1 :UInt32;      # from its launcher
  protocol @2 :UInt32;
  troupeVersion @3 :Text;
  cafVersion @4 :Text;
  ucxVersion @5 :Text;       # empty: none
  settingsHash @6 :UInt64;
  typeTableHash @7 :UInt64;
  pid @8 :Int32;
  pidNamespace @9 :UInt64;   # inode
  topology @10 :Topology;
  addresses @11 :List(Text);  # numeric, of all its network interfaces; rank 0 adds the one that it sees
  settings @12 :List(Text);  # the lines that settingsHash hashes, long values cut; rank 0 does not send them on
  nccl @13 :UInt32;          # NCCL's number of its version; 0: none, or it was not looked for
  endMark @14 :Int32 = -1;   # file descriptor of its end mark; -1: none
}

struct Topology {
  bootId @0 :Text;
  networkNamespace @1 :UInt64;  # inode
  host @2 :Text;
  cpuModel @3 :Text;
  numa @4 :List(NumaNode);
  cores @5 :List(Core);
  nics @6 :List(Nic);
  l2Bytes @7 :UInt64;
  l3Bytes @8 :UInt64;
  cpuQuota @9 :Float64;         # number of cores whose time is granted; 0: no limit
  memoryLimitBytes @10 :UInt64; # 0: no limit
  memoryBytes @11 :UInt64;
  gpus @12 :List(Gpu);          # that CUDA shows the process, in jobs that may use them

  struct NumaNode {
    osIndex @0 :UInt32;
    memoryBytes @1 :UInt64;
  }
  struct Core {
    index @0 :UInt32;
    numa @1 :UInt32;
    package @2 :UInt32;
    cpus @3 :List(UInt32);
    l3 @4 :UInt32;
  }
  struct Nic {
    name @0 :Text;
    address @1 :Text;
    numa @2 :Int32;
    bitsPerSecond @3 :UInt64;
    up @4 :Bool;
    loopback @5 :Bool;
    infiniband @6 :Text;
  }
  struct Gpu {
    name @0 :Text;
    model @1 :Text;
    memoryBytes @2 :UInt64;
    numa @3 :Int32;
    nearestNics @4 :List(Text);
    bus @5 :Text;             # PCI bus id
    exclusive @6 :Bool;       # takes one process only
    reaches @7 :List(Text);   # PCI bus ids of those whose memory it reaches
  }
}
