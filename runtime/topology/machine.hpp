#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/topology/cpu_set.hpp"
#include "runtime/topology/rank_place.hpp"

// The room topology: a machine's parts as a value, which is read from files, written to files, compared, checked, and
// searched for paths between parts. It uses no library except for XML and JSON; devices/discovery makes the value of
// this host.
namespace troupe::topology {

using PartIndex = std::uint32_t;
inline constexpr PartIndex kNoPart = ~PartIndex{0};
/// The machine itself, which contains all other parts.
inline constexpr PartIndex kRoot = 0;

enum class PartKind : std::uint8_t {
  machine,
  package,       // a processor that fits into a socket
  die,           //
  group,         // hwloc's group: parts that are near each other and have no kind of their own
  numa,          // memory; the nearest processors are those of its parent
  memory_cache,  // in front of memory
  cache,
  core,
  pu,           // a hardware thread
  host_bridge,  // the root of a PCI tree
  pci_bridge,   // one port: a root port, or a switch's upstream or downstream port
  pci_switch,   // a whole switch, in files that do not list its ports
  pci_function,
  misc,  // memory modules and others
};
std::string_view name_of(PartKind kind) noexcept;

struct Info {
  std::string name;
  std::string value;
  friend bool operator==(const Info&, const Info&) = default;
};
/// The value of the first info with this name; nullptr if there is none.
const std::string* find_info(const std::vector<Info>& infos, std::string_view name) noexcept;

struct CacheAttributes {
  enum class Holds : std::uint8_t { both, data, instructions };
  std::uint32_t level = 0;
  Holds holds = Holds::both;
  std::uint32_t line_bytes = 0;
  std::int32_t ways = 0;  // -1: fully associative, 0: unknown
  friend bool operator==(const CacheAttributes&, const CacheAttributes&) = default;
};

/// The speed of a PCI function's link: rate and lanes, or only the total if the source gives no more.
struct PciLink {
  double gigatransfers = 0;  // per second and lane; 0: unknown
  std::uint32_t lanes = 0;   // 0: unknown
  double gigabytes = 0;      // per second in each direction, from the source; 0: unknown
  friend bool operator==(const PciLink&, const PciLink&) = default;
};
/// Bytes per second in each direction, after PCI Express's line coding; 0: unknown.
double bytes_per_second(const PciLink& link) noexcept;
/// "16 GT/s x16", "3.9 GB/s"; empty: unknown.
std::string text_of(const PciLink& link);

struct PciAttributes {
  std::string bus;               // "0000:3b:00.0"; empty for a host bridge
  std::string below;             // for a bridge: the buses behind it, "0000:[3a-3f]"
  std::uint32_t class_code = 0;  // 24 bits, e.g. 0x030200; 0: unknown
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::uint16_t subsystem_vendor = 0;
  std::uint16_t subsystem_device = 0;
  std::uint8_t revision = 0;
  PciLink now;
  PciLink possible;
  std::string physical_function;     // for an SR-IOV virtual function: the bus id of its physical function
  std::optional<bool> acs_redirect;  // for a bridge: packets between devices behind it are sent up to the root
  friend bool operator==(const PciAttributes&, const PciAttributes&) = default;
};

/// The name of a part in a system or library: eth0, mlx5_0, cuda0, nvme0n1. A part can have several.
struct OsDevice {
  enum class Kind : std::uint8_t { block, gpu, network, openfabrics, dma, coprocessor, memory };
  Kind kind = Kind::block;
  std::string name;
  std::string backend;  // "CUDA", "NVML", "OpenCL", "Disk"; may be empty
  std::vector<Info> infos;
  friend bool operator==(const OsDevice&, const OsDevice&) = default;
};

struct Part {
  PartKind kind = PartKind::machine;
  PartIndex parent = kNoPart;
  std::int32_t os_index = -1;  // the system's number; -1: none
  std::string name;            // of a misc part
  std::string subtype;         // "NVSwitch", "MemoryModule", "GPUMemory"; mostly empty
  std::uint64_t bytes = 0;     // memory of a NUMA node, size of a cache
  std::optional<CacheAttributes> cache;
  std::optional<PciAttributes> pci;
  CpuSet cpus;  // for a part whose pu parts are not listed
  std::vector<OsDevice> os_devices;
  std::vector<Info> infos;
  friend bool operator==(const Part&, const Part&) = default;
};

/// The state of a GPU, as far as it could be queried.
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
  std::optional<std::uint32_t> cores;  // that each compute one multiply-add of f32 in a cycle
  std::optional<std::uint32_t> most_memory_clock_mhz;
  std::optional<std::uint32_t> memory_bus_bits;
  std::optional<std::uint64_t> throttle_reasons;    // NVML's bits
  std::optional<std::uint64_t> uncorrected_errors;  // ECC, since the driver was loaded
  std::optional<bool> mig;                          // divided into instances
  std::vector<Info> infos;                          // in a form that only the source of the topology understands
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

struct Interface {
  std::string name;     // eth0
  std::string address;  // hardware address
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
  std::map<std::string, std::uint64_t> rising;  // error counters that rose during a measurement, with the increase
  std::vector<Info> infos;                      // like Gpu::infos
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

/// Lanes between a GPU and one neighbour: another GPU, a switch, or the processor.
struct AcceleratorLink {
  enum class Kind : std::uint8_t { nvlink, xgmi, c2c };
  PartIndex from = kNoPart;
  Kind kind = Kind::nvlink;
  std::string to;  // PCI bus id; empty: unknown
  std::uint32_t to_class = 0;
  std::uint32_t lanes = 0;
  std::uint32_t lanes_down = 0;        // of `lanes`
  std::uint64_t bytes_per_second = 0;  // in each direction, over all lanes; 0: unknown
  friend bool operator==(const AcceleratorLink&, const AcceleratorLink&) = default;
};
std::string_view name_of(AcceleratorLink::Kind kind) noexcept;

/// A matrix of values between parts, row by row, as in hwloc.
struct Distances {
  std::string name;
  std::uint32_t kind = 0;  // hwloc's bits: 4 latency, 8 bandwidth
  std::vector<PartIndex> parts;
  std::vector<std::uint64_t> values;  // parts x parts
  friend bool operator==(const Distances&, const Distances&) = default;
};

/// Processors of one kind, on a machine with several kinds.
struct CpuKind {
  CpuSet cpus;
  std::int32_t efficiency = -1;
  std::vector<Info> infos;
  friend bool operator==(const CpuKind&, const CpuKind&) = default;
};

/// Limits for processes. Absent: not looked up; the largest number: no limit.
struct Limits {
  std::optional<double> cpu_quota;  // number of processors whose time is granted; 0: no limit
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint64_t> locked_bytes;
  std::optional<std::uint64_t> open_files;
  CpuSet allowed;  // processors; empty: all
  friend bool operator==(const Limits&, const Limits&) = default;
};

/// Settings and states of the system that can make runs slow or fail. Absent: not looked up.
struct SystemFacts {
  std::string kernel;
  std::string gpu_driver;
  std::optional<std::string> governor;  // of the first allowed processor
  std::optional<bool> numa_balancing;
  std::optional<bool> clock_synchronized;
  std::optional<double> clock_ahead_ms;          // of the clock of the job's rank 0; negative: behind it
  double clock_within_ms = 0;                    // the largest error of clock_ahead_ms
  std::optional<bool> peer_memory;               // a kernel module that lets NICs access GPU memory is loaded
  std::optional<bool> iommu_translates;          //
  std::vector<std::string> gpus_without_file;    // bus ids of GPUs in /sys without a file in /dev
  std::optional<std::string> nccl_file;          // NCCL_TOPO_FILE
  std::vector<std::string> nccl_file_not_found;  // bus ids in that file that do not exist here; "": it cannot be read
  friend bool operator==(const SystemFacts&, const SystemFacts&) = default;
};

/// One machine. parts[0] is the machine itself; each part is followed by all the parts that it contains.
struct Machine {
  std::string host;  // for people
  std::vector<Part> parts{Part{}};
  std::vector<Gpu> gpus;               // in the order of parts
  std::vector<Nic> nics;               // likewise
  std::vector<AcceleratorLink> links;  // likewise
  std::vector<Distances> distances;
  std::vector<CpuKind> cpu_kinds;
  Limits limits;
  SystemFacts system;
  std::vector<RankPlace> ranks;
  friend bool operator==(const Machine&, const Machine&) = default;
};

/// Numbers of parts by kind. `gpu_pci`: functions for which is_gpu_class() is true; `nic_pci`: functions of class 02,
/// including virtual ones; `nvlink_or_xgmi`: neighbours of GPUs over such links.
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

/// Looks up relations in the other direction than the tables. Refers to the machine, which outlives it unchanged.
class Index {
 public:
  explicit Index(const Machine& machine);
  Index(const Index&) = delete;  // it points into its own tables
  Index& operator=(const Index&) = delete;
  const Machine& machine() const noexcept { return machine_; }
  const std::vector<PartIndex>& children(PartIndex part) const { return children_[part]; }
  /// Processors in or near the part; for memory and devices those of the parent. Empty: unknown.
  const CpuSet& cpus(PartIndex part) const { return cpus_[part]; }
  /// The part with this PCI bus id, or kNoPart.
  PartIndex at_bus(std::string_view bus) const;
  /// The nearest NUMA node with memory for processors, or kNoPart: the machine's only one, that of the nearest part
  /// above `part` that has one, or the one near the same processors.
  PartIndex numa_of(PartIndex part) const { return numa_[part]; }
  /// The package that contains the part, or the one near the same processors; kNoPart: unknown.
  PartIndex package_of(PartIndex part) const;
  /// The part's number among parts of its kind, like hwloc's logical numbers.
  std::uint32_t number(PartIndex part) const { return number_[part]; }
  const Gpu* gpu_at(PartIndex part) const { return gpus_[part]; }
  const Nic* nic_at(PartIndex part) const { return nics_[part]; }
  /// Like accelerator_links().
  const std::vector<AcceleratorLink>& links() const noexcept { return links_; }
  /// Those of them that begin at the part, in the same order.
  std::span<const AcceleratorLink* const> links_from(PartIndex part) const { return links_from_[part]; }

 private:
  void collect_cpus();
  void find_numa();
  const Machine& machine_;
  std::vector<std::vector<PartIndex>> children_;
  std::vector<CpuSet> cpus_;
  std::vector<PartIndex> numa_;
  std::vector<std::uint32_t> number_;
  std::map<std::string, PartIndex, std::less<>> by_bus_;
  const std::vector<AcceleratorLink> links_;
  // By part; null: none.
  std::vector<std::vector<const AcceleratorLink*>> links_from_;
  std::vector<const Gpu*> gpus_;
  std::vector<const Nic*> nics_;
};

/// Whether the part is a memory module that is in its slot; hwloc lists empty slots as modules named "NO DIMM".
bool is_memory_module(const Part& part) noexcept;
/// "64 KiB", "512 GB": caches in powers of two, memory in powers of ten, with three digits.
std::string bytes_text(std::uint64_t bytes);
/// The name of a part for people: "GPU 2", "mlx5_0", "NUMA 1". A NIC that is listed without a part of its own does not
/// give its name to the package or machine in which it is listed.
std::string label_of(const Index& index, PartIndex part);
/// "NVIDIA", "AMD", "Mellanox" ...; empty for other vendors.
std::string_view vendor_name(std::uint16_t vendor) noexcept;
/// Whether it is a display controller or accelerator (class 03 or 12) of NVIDIA or AMD. If the vendor is unknown, a
/// plain VGA adapter does not count.
bool is_gpu_class(const PciAttributes& pci) noexcept;
/// Whether it counts as a GPU: of that class, or one of Intel's data center GPUs; not the display of a server's
/// management controller.
bool is_gpu(const PciAttributes& pci) noexcept;
bool is_nic_class(const PciAttributes& pci) noexcept;
inline constexpr std::uint32_t kNvSwitchClass = 0x068000;
/// The class of a link's end at a processor, which has no PCI bus id.
inline constexpr std::uint32_t kProcessorClass = 0x060000;

/// Links between GPUs and their neighbours: those that are stored, and those that follow from a matrix of bandwidths
/// between PCI functions.
std::vector<AcceleratorLink> accelerator_links(const Machine& machine);
/// Makes gpus and nics from the data of parts, for a source that describes only parts.
void describe_devices(Machine& machine);
/// Throws Error{invalid}, whose text begins with `source`, if an index, a size or the order of parts is wrong.
void check(const Machine& machine, std::string_view source);

}  // namespace troupe::topology
