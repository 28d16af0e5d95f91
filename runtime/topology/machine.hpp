#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/topology/cpu_set.hpp"

// The room topology: what a machine consists of, as a value: read from files and written to them, compared, examined,
// and asked for paths between its parts. It knows no library but those for XML and JSON; devices/discovery makes the
// value of this host.
namespace troupe::topology {

using PartIndex = std::uint32_t;
inline constexpr PartIndex kNoPart = ~PartIndex{0};
/// Of the machine itself, which contains all other parts.
inline constexpr PartIndex kRoot = 0;

enum class PartKind : std::uint8_t {
  machine,
  package,       // what fits a socket
  die,           //
  group,         // hwloc's: parts that are near each other for a reason that has no kind of its own
  numa,          // memory; the processors near it are those of its parent
  memory_cache,  // in front of memory
  cache,
  core,
  pu,           // a hardware thread
  host_bridge,  // where a tree of PCI begins
  pci_bridge,   // one port: a root port, or a switch's upstream or downstream port
  pci_switch,   // a whole switch, where a file does not list its ports
  pci_function,
  misc,  // memory modules and the like
};
std::string_view name_of(PartKind kind) noexcept;

struct Info {
  std::string name;
  std::string value;
  friend bool operator==(const Info&, const Info&) = default;
};
/// The value of the first that has this name; nullptr when there is none.
const std::string* find_info(const std::vector<Info>& infos, std::string_view name) noexcept;

struct CacheAttributes {
  enum class Holds : std::uint8_t { both, data, instructions };
  std::uint32_t level = 0;
  Holds holds = Holds::both;
  std::uint32_t line_bytes = 0;
  std::int32_t ways = 0;  // -1: fully associative, 0: unknown
  friend bool operator==(const CacheAttributes&, const CacheAttributes&) = default;
};

/// How fast a PCI function's link is, either by lanes or, where a source does not say more, as a whole.
struct PciLink {
  double gigatransfers = 0;  // per second and lane; 0: unknown
  std::uint32_t lanes = 0;   // 0: unknown
  double gigabytes = 0;      // per second in each direction, as a source gave it; 0: unknown
  friend bool operator==(const PciLink&, const PciLink&) = default;
};
/// Bytes per second in each direction, after PCI Express's coding of bits; 0: unknown.
double bytes_per_second(const PciLink& link) noexcept;
/// "16 GT/s x16", "3.9 GB/s"; empty: unknown.
std::string text_of(const PciLink& link);

struct PciAttributes {
  std::string bus;               // "0000:3b:00.0"; of a host bridge: empty
  std::string below;             // of a bridge: the buses behind it, "0000:[3a-3f]"
  std::uint32_t class_code = 0;  // 24 bits, 0x030200; 0: not said
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::uint16_t subsystem_vendor = 0;
  std::uint16_t subsystem_device = 0;
  std::uint8_t revision = 0;
  PciLink now;
  PciLink possible;
  std::string physical_function;     // of an SR-IOV virtual function: the bus id of the function it is part of
  std::optional<bool> acs_redirect;  // of a bridge: packets between devices behind it go up to the root
  friend bool operator==(const PciAttributes&, const PciAttributes&) = default;
};

/// What an operating system or a library calls a part: eth0, mlx5_0, cuda0, nvme0n1. One part can have several.
struct Face {
  enum class Kind : std::uint8_t { block, gpu, network, openfabrics, dma, coprocessor, memory };
  Kind kind = Kind::block;
  std::string name;
  std::string backend;  // "CUDA", "NVML", "OpenCL", "Disk"; may be empty
  std::vector<Info> infos;
  friend bool operator==(const Face&, const Face&) = default;
};

struct Part {
  PartKind kind = PartKind::machine;
  PartIndex parent = kNoPart;
  std::int32_t os_index = -1;  // the operating system's number; -1: none
  std::string name;            // of a misc part
  std::string subtype;         // "NVSwitch", "MemoryModule", "GPUMemory"; mostly empty
  std::uint64_t bytes = 0;     // memory of a NUMA node, size of a cache
  std::optional<CacheAttributes> cache;
  std::optional<PciAttributes> pci;
  CpuSet cpus;  // of a part whose pu parts are not listed
  std::vector<Face> faces;
  std::vector<Info> infos;
  friend bool operator==(const Part&, const Part&) = default;
};

/// What is wrong with a GPU as far as somebody could ask it.
enum class GpuState : std::uint8_t { unknown, ok, lost, no_permission };

struct Gpu {
  PartIndex part = kNoPart;  // normally a pci_function
  std::string vendor;        // "nvidia", "amd", "intel"; empty: unknown
  std::string model;
  std::uint64_t memory_bytes = 0;
  std::string architecture;  // "sm_90", "gfx942"
  std::string uuid;
  std::string serial;
  std::string firmware;
  GpuState state = GpuState::unknown;
  std::optional<std::uint32_t> utilization_percent;
  std::optional<std::uint32_t> clock_mhz;
  std::optional<std::uint32_t> most_clock_mhz;
  std::optional<std::uint64_t> throttle_reasons;    // NVML's bits
  std::optional<std::uint64_t> uncorrected_errors;  // ECC, since the driver was loaded
  std::optional<bool> mig;                          // divided into instances
  std::vector<Info> infos;                          // what only the source of the topology understands
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

struct Interface {
  std::string name;     // eth0
  std::string address;  // of the hardware
  std::uint64_t bits_per_second = 0;
  std::uint32_t mtu_bytes = 0;
  std::optional<bool> up;
  friend bool operator==(const Interface&, const Interface&) = default;
};

struct RdmaPort {
  std::string device;  // mlx5_0
  std::uint32_t port = 1;
  std::optional<bool> active;
  std::string link_layer;  // "InfiniBand", "Ethernet"
  std::uint64_t bits_per_second = 0;
  std::uint32_t mtu_bytes = 0;
  std::string guid;
  std::map<std::string, std::uint64_t> rising;  // counters of errors that rose while somebody looked, and by how much
  std::vector<Info> infos;                      // as Gpu::infos
  friend bool operator==(const RdmaPort&, const RdmaPort&) = default;
};

struct Nic {
  PartIndex part = kNoPart;
  std::string driver;
  std::string firmware;
  std::vector<Interface> interfaces;
  std::vector<RdmaPort> ports;
  friend bool operator==(const Nic&, const Nic&) = default;
};

/// Lanes between a GPU and one neighbour, which is another GPU, a switch, or the processor.
struct AcceleratorLink {
  enum class Kind : std::uint8_t { nvlink, xgmi, c2c };
  PartIndex from = kNoPart;
  Kind kind = Kind::nvlink;
  std::string to;  // PCI bus id; empty: unknown
  std::uint32_t to_class = 0;
  std::uint32_t lanes = 0;
  std::uint32_t lanes_down = 0;        // of `lanes`
  std::uint64_t bytes_per_second = 0;  // in each direction, of all lanes together; 0: unknown
  friend bool operator==(const AcceleratorLink&, const AcceleratorLink&) = default;
};
std::string_view name_of(AcceleratorLink::Kind kind) noexcept;

/// A matrix of figures between parts, row by row, as hwloc has them.
struct Distances {
  std::string name;
  std::uint32_t kind = 0;  // hwloc's bits: 4 latency, 8 bandwidth
  std::vector<PartIndex> parts;
  std::vector<std::uint64_t> values;  // parts x parts
  friend bool operator==(const Distances&, const Distances&) = default;
};

/// Processors of one kind on a machine that has several.
struct CpuKind {
  CpuSet cpus;
  std::int32_t efficiency = -1;
  std::vector<Info> infos;
  friend bool operator==(const CpuKind&, const CpuKind&) = default;
};

/// Bounds on what processes may use. Absent: nobody looked; the largest number: there is no bound.
struct Limits {
  std::optional<double> cpu_quota;  // processors' worth of time; 0: no bound
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint64_t> locked_bytes;
  std::optional<std::uint64_t> open_files;
  CpuSet allowed;  // processors; empty: all
  friend bool operator==(const Limits&, const Limits&) = default;
};

/// Settings and states of the system that make runs slow or break them. Absent: nobody looked.
struct SystemFacts {
  std::string kernel;
  std::string gpu_driver;
  std::optional<std::string> governor;  // of the first allowed processor
  std::optional<bool> numa_balancing;
  std::optional<bool> clock_synchronized;
  std::optional<bool> peer_memory;               // a kernel module lets NICs reach GPU memory
  std::optional<bool> iommu_translates;          //
  std::vector<std::string> gpus_without_file;    // bus ids of GPUs of /sys for which /dev has no file
  std::optional<std::string> nccl_file;          // NCCL_TOPO_FILE
  std::vector<std::string> nccl_file_not_found;  // bus ids of that file that are not here; "": it cannot be read
  friend bool operator==(const SystemFacts&, const SystemFacts&) = default;
};

/// A thread of a rank.
struct ThreadPlace {
  std::string name;
  CpuSet cpus;     // it may run on
  CpuSet planned;  // it should stay on; empty: anywhere
  friend bool operator==(const ThreadPlace&, const ThreadPlace&) = default;
};

/// Where a rank's threads, memory and transport are, and where its plan wants them, as the rank itself finds out.
struct Placement {
  std::vector<ThreadPlace> threads;
  std::vector<std::uint32_t> planned_numa;       // by the system's numbers; empty: any
  std::map<std::uint32_t, std::uint64_t> pages;  // of a sample of its shared memory, by the system's number of the node
  std::string memory_refused;                    // what the system answered when memory was to be bound; empty: nothing
  std::string planned_devices;                   // network devices as UCX_NET_DEVICES names them; empty: any
  std::string chosen_devices;                    // UCX_NET_DEVICES of the user, which came before the plan
  std::vector<std::string> open_devices;         // that the transport has opened
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// Where one rank of a job runs, as seen from outside.
struct RankPlace {
  std::uint32_t rank = 0;
  std::int32_t pid = 0;
  CpuSet cpus;                                        // it may run on
  std::map<std::uint32_t, std::uint64_t> numa_bytes;  // memory it has, by the system's number of the node
  std::string gpu;                                    // bus id; empty: none known
  std::string nic;                                    // an interface's or RDMA device's name; empty: none chosen
  std::string transports;                             // UCX_TLS; empty: UCX chooses
  std::optional<Placement> placement;                 // absent: the rank did not tell
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

/// One machine. parts[0] is the machine itself; a part stands behind its parent, and all parts in it follow it at once.
struct Machine {
  std::string host;  // for people
  std::vector<Part> parts{Part{}};
  std::vector<Gpu> gpus;               // by part
  std::vector<Nic> nics;               // by part
  std::vector<AcceleratorLink> links;  // by part
  std::vector<Distances> distances;
  std::vector<CpuKind> cpu_kinds;
  Limits limits;
  SystemFacts system;
  std::vector<RankPlace> ranks;
  friend bool operator==(const Machine&, const Machine&) = default;
};

/// How many of each there are. `gpu_pci`: functions for which is_gpu_class() is true; `nic_pci`: those of class 02,
/// virtual ones included; `nvlink_or_xgmi`: neighbours of GPUs by such links.
struct Counts {
  std::uint32_t packages = 0;
  std::uint32_t numa = 0;
  std::uint32_t cores = 0;
  std::uint32_t pus = 0;
  std::uint32_t gpu_pci = 0;
  std::uint32_t nic_pci = 0;
  std::uint32_t nvlink_or_xgmi = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
};
Counts count(const Machine& machine);

/// Looks up what a machine's tables say only one way round. Refers to the machine, which must outlive it unchanged.
class Index {
 public:
  explicit Index(const Machine& machine);
  const Machine& machine() const noexcept { return machine_; }
  const std::vector<PartIndex>& children(PartIndex part) const { return children_[part]; }
  /// Processors in or near the part; those of the parent for memory and devices. Empty: unknown.
  const CpuSet& cpus(PartIndex part) const { return cpus_[part]; }
  /// The part with this PCI bus id, or kNoPart.
  PartIndex at_bus(std::string_view bus) const;
  /// The nearest NUMA node with memory for processors, or kNoPart: of the machine's only one, of the nearest part above
  /// `part` that has one, or by the processors near it.
  PartIndex numa_of(PartIndex part) const { return numa_[part]; }
  /// The package around it, or by the processors near it; kNoPart: unknown.
  PartIndex package_of(PartIndex part) const;
  /// A part's place among those of its kind, as hwloc's logical numbers.
  std::uint32_t number(PartIndex part) const { return number_[part]; }
  const Gpu* gpu_at(PartIndex part) const;
  const Nic* nic_at(PartIndex part) const;
  /// As accelerator_links() tells.
  const std::vector<AcceleratorLink>& links() const noexcept { return links_; }

 private:
  void collect_cpus();
  void find_numa();
  const Machine& machine_;
  std::vector<std::vector<PartIndex>> children_;
  std::vector<CpuSet> cpus_;
  std::vector<PartIndex> numa_;
  std::vector<std::uint32_t> number_;
  std::map<std::string, PartIndex, std::less<>> by_bus_;
  std::vector<AcceleratorLink> links_;
};

/// "64 KiB", "512 GB": caches by powers of two, memory by powers of ten, with three digits.
std::string bytes_text(std::uint64_t bytes);
/// "GPU 2", "mlx5_0", "NUMA 1": what people call a part here. A NIC that is listed without a part of its own does not
/// name the package or machine that it is listed in.
std::string label_of(const Index& index, PartIndex part);
/// "NVIDIA", "AMD", "Mellanox" ...; empty for a vendor that is not a well-known one.
std::string_view vendor_name(std::uint16_t vendor) noexcept;
/// A display controller or accelerator (class 03 or 12) of NVIDIA or AMD. Where the vendor is not said, a plain VGA
/// adapter is none.
bool is_gpu_class(const PciAttributes& pci) noexcept;
/// Whether it is taken for a GPU: of that class, or one of Intel's data center GPUs; not a display of a server's
/// management controller.
bool is_gpu(const PciAttributes& pci) noexcept;
bool is_nic_class(const PciAttributes& pci) noexcept;
inline constexpr std::uint32_t kNvSwitchClass = 0x068000;

/// Links between GPUs and their neighbours: those that are stored, and those that a matrix of bandwidths between PCI
/// functions tells of.
std::vector<AcceleratorLink> accelerator_links(const Machine& machine);
/// Makes gpus and nics from what parts say of themselves, where the source of a topology told of parts only.
void describe_devices(Machine& machine);
/// Throws Error{invalid} with `source` in front when an index, a size or the order of parts is wrong.
void check(const Machine& machine, std::string_view source);

}  // namespace troupe::topology
