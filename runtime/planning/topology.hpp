#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// A host as a run sees it: (boot id, network namespace), so that two namespaces of one host are two nodes.
struct NodeIdentity {
  std::string boot_id;
  std::uint64_t network_namespace = 0;  // inode
  friend auto operator<=>(const NodeIdentity&, const NodeIdentity&) = default;
};

/// A physical core, with those of its hardware threads that this process may use.
struct Core {
  std::uint32_t index = 0;  // hwloc's logical number
  std::uint32_t numa = 0;   // index into Topology::numa
  std::uint32_t package = 0;
  std::vector<std::uint32_t> cpus;  // the system's numbers, ascending
  std::uint32_t l3 = 0;             // cores with the same number share a cache of level 3; without such caches 0
  friend bool operator==(const Core&, const Core&) = default;
};

struct NumaNode {
  std::uint32_t os_index = 0;
  std::uint64_t memory_bytes = 0;
  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

struct Nic {
  std::string name;                   // eth0
  std::string address;                // first IPv4 or IPv6 address as text; empty: none
  std::int32_t numa = -1;             // index into Topology::numa, -1: unknown
  std::uint64_t bits_per_second = 0;  // 0: unknown
  bool up = false;
  bool loopback = false;
  std::string infiniband;  // RDMA device, empty: none
  friend bool operator==(const Nic&, const Nic&) = default;
};

/// The name of a NIC's RDMA device in plans and UCX: with its port, of which a function of present adapters has
/// one.
inline std::string rdma_name(const Nic& nic) { return nic.infiniband + ":1"; }
/// Whether a plan means this NIC by `name`: the name of its interface or of its RDMA device.
inline bool is_called(const Nic& nic, const std::string& name) {
  return nic.name == name || (!nic.infiniband.empty() && rdma_name(nic) == name);
}

/// A GPU. Ranks are placed near it; those whose device is cuda compute on it.
struct Accelerator {
  std::string name;   // GPU 0
  std::string model;  // may be empty
  std::uint64_t memory_bytes = 0;
  std::int32_t numa = -1;                 // index into Topology::numa, -1: unknown
  std::vector<std::string> nearest_nics;  // names of the nearest NICs that are up
  std::string bus;                        // PCI bus id, 0000:3b:00.0; empty: unknown
  std::string vendor;                     // "nvidia"; empty: unknown
  bool cuda = false;                      // the CUDA driver of the running node shows it
  bool exclusive = false;                 // takes one process only
  std::vector<std::string> reaches;       // bus ids of those whose memory it reaches, as the process sees it
  friend bool operator==(const Accelerator&, const Accelerator&) = default;
};

/// The hardware of one node, as a value.
struct Topology {
  NodeIdentity identity;
  std::string host;  // for people
  std::string cpu_model;
  std::vector<NumaNode> numa;
  std::vector<Core> cores;  // allowed ones, by index
  std::vector<Nic> nics;
  std::uint64_t l2_bytes = 0;            // of a core
  std::uint64_t l3_bytes = 0;            // of a package
  double cpu_quota = 0;                  // number of cores whose time a cgroup grants; 0: no limit
  std::uint64_t memory_bytes = 0;        // of the host; a NUMA node's own figure may be lower if memory was added later
  std::uint64_t memory_limit_bytes = 0;  // limit of a cgroup; 0: no limit
  std::vector<Accelerator> accelerators;  // of machines from files all, in runs those that CUDA shows
  friend bool operator==(const Topology&, const Topology&) = default;
};

}  // namespace troupe
