#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/topology/machine.hpp"

namespace troupe::topology {

/// What the way between two parts passes, from near to far; the words are those of `nvidia-smi topo -m`.
enum class PathClass : std::uint8_t {
  self,      // X
  link,      // NV#, XG#: an accelerator link, or a switch for such links
  hop,       // NVB: two such links, with another GPU between
  c2c,       // C2C: a coherent link between GPU and processor
  pix,       // PIX: one PCI switch
  pxb,       // PXB: several PCI switches, no processor
  phb,       // PHB: a PCI host bridge, which is in the processor
  node,      // NODE: the processor, between host bridges near the same memory
  sys,       // SYS: the link between processors or NUMA nodes
  detached,  // none: they are not joined inside the machine
};
std::string_view name_of(PathClass path_class) noexcept;

struct Path {
  PathClass path_class = PathClass::detached;
  AcceleratorLink::Kind link = AcceleratorLink::Kind::nvlink;  // of class link or hop
  std::uint32_t lanes = 0;                                     // of class link
  double bytes_per_second = 0;  // modelled, in one direction; a limit that is not known is taken as PCI Express 3 x16
  bool assumed = false;         // some limit was
  std::string slowest;          // what sets the rate
  PartIndex slowest_link = kNoPart;  // the part whose PCI link does; kNoPart: something else does, or none is known
  std::vector<PartIndex> via;        // parts between the two, in order
};
/// "NV12", "PIX"
std::string text_of(const Path& path);

/// All ways that there are between GPUs, NICs, NUMA nodes or other parts, the one to take first: by modelled rate, then
/// by class.
std::vector<Path> paths_between(const Index& index, PartIndex from, PartIndex to);
/// The first of them; class detached when there is none.
Path best_path(const Index& index, PartIndex from, PartIndex to);

/// Rates are PCI Express's after coding, times this: what large copies reach of it.
inline constexpr double kPciEfficiency = 0.8;
/// GB/s of one lane in one direction, as collectives reach them: NVLink by compute capability, xGMI by kind of GPU.
double lane_gigabytes(AcceleratorLink::Kind kind, std::string_view architecture) noexcept;

/// Whether it is a device of its own, which GPUs have a way to: no virtual function, and no interface without a part.
bool is_whole_nic(const Machine& machine, const Nic& nic);
/// The NIC with the fastest path to a GPU (of several the nearest, then the first); kNoPart: there is none.
PartIndex nearest_nic(const Index& index, PartIndex gpu);

}  // namespace troupe::topology
