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

/// A physical core and those of its hardware threads that this process may use.
struct Core {
  std::uint32_t index = 0;  // hwloc's logical number
  std::uint32_t numa = 0;   // index into Topology::numa
  std::uint32_t package = 0;
  std::vector<std::uint32_t> cpus;  // operating system's numbers, ascending
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
  std::string address;                // first IPv4 or IPv6 address in text, empty: none
  std::int32_t numa = -1;             // index into Topology::numa, -1: unknown
  std::uint64_t bits_per_second = 0;  // 0: unknown
  bool up = false;
  bool loopback = false;
  std::string infiniband;  // RDMA device, empty: none
  friend bool operator==(const Nic&, const Nic&) = default;
};

/// What plans and UCX call the RDMA device of a NIC that has one: with its port, of which a function of today's
/// adapters has one.
inline std::string rdma_name(const Nic& nic) { return nic.infiniband + ":1"; }
/// Whether a plan means this NIC by `name`: by its interface, or by its RDMA device.
inline bool is_called(const Nic& nic, const std::string& name) {
  return nic.name == name || (!nic.infiniband.empty() && rdma_name(nic) == name);
}

/// A GPU, which no device of ours uses yet: ranks are placed near it.
struct Accelerator {
  std::string name;   // GPU 0
  std::string model;  // may be empty
  std::uint64_t memory_bytes = 0;
  std::int32_t numa = -1;                 // index into Topology::numa, -1: unknown
  std::vector<std::string> nearest_nics;  // names of those that are up and none is nearer
  friend bool operator==(const Accelerator&, const Accelerator&) = default;
};

/// What one node has, as a value.
struct Topology {
  NodeIdentity identity;
  std::string host;  // for people
  std::string cpu_model;
  std::vector<NumaNode> numa;
  std::vector<Core> cores;  // allowed ones, by index
  std::vector<Nic> nics;
  std::uint64_t l2_bytes = 0;      // of a core
  std::uint64_t l3_bytes = 0;      // of a package
  double cpu_quota = 0;            // cores' worth of time a cgroup grants; 0: no limit
  std::uint64_t memory_bytes = 0;  // of the host; a NUMA node's file may tell of less where memory was added later
  std::uint64_t memory_limit_bytes = 0;   // that a cgroup grants; 0: no limit
  std::vector<Accelerator> accelerators;  // of machines from files; a run does not look for them, hellos do not tell
  friend bool operator==(const Topology&, const Topology&) = default;
};

}  // namespace troupe
