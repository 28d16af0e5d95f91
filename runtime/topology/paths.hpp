#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/topology/machine.hpp"

namespace troupe::topology {

/// What a path between two parts passes, from near to far; the words are those of `nvidia-smi topo -m`.
enum class PathClass : std::uint8_t {
  self,      // X
  link,      // NV#, XG#: an accelerator link, or a switch for such links
  hop,       // NVB: two such links, through another GPU
  c2c,       // C2C: a coherent link between GPU and processor
  pix,       // PIX: one PCI switch
  pxb,       // PXB: several PCI switches, no processor
  phb,       // PHB: a PCI host bridge, which is inside the processor
  node,      // NODE: the processor, between host bridges near the same memory
  sys,       // SYS: the link between processors or NUMA nodes
  detached,  // none: not connected inside the machine
};
std::string_view name_of(PathClass path_class) noexcept;

struct Path {
  PathClass path_class = PathClass::detached;
  AcceleratorLink::Kind link = AcceleratorLink::Kind::nvlink;  // for class link or hop
  std::uint32_t lanes = 0;                                     // for class link
  double bytes_per_second = 0;       // modelled, in one direction; an unknown limit counts as PCI Express 3 x16
  bool assumed = false;              // whether a limit was unknown
  std::string slowest;               // what limits the rate
  std::vector<PartIndex> via;        // the parts between the two, in order
  std::vector<PartIndex> pci_links;  // the parts whose PCI links it crosses
};
/// "NV12", "PIX"
std::string text_of(const Path& path);

/// All paths between GPUs, NICs, NUMA nodes or other parts, best first: those that are at least 0.9 times as fast as
/// the fastest by class, then the others by modelled rate.
std::vector<Path> paths_between(const Index& index, PartIndex from, PartIndex to);
/// The first of them; of class detached if there is none.
Path best_path(const Index& index, PartIndex from, PartIndex to);

/// The factor for PCI Express rates after line coding: the fraction that large copies reach.
inline constexpr double kPciEfficiency = 0.8;
/// GB/s of one lane in one direction, as reached by collectives: NVLink by compute capability, xGMI by kind of GPU.
double lane_gigabytes(AcceleratorLink::Kind kind, std::string_view architecture) noexcept;

/// Whether the description tells where the link ends: at a part of it other than the GPU itself, at the processor, or
/// at a switch, which need not be a part.
bool end_is_known(const Index& index, const AcceleratorLink& link);

/// Whether GPUs can have a path to it: not a virtual function, nor an interface without a part of its own.
bool is_whole_nic(const Machine& machine, const Nic& nic);
/// Whether a NIC is nearer over path `a` than over `b`: by class, then by rate; within PCI switches then by the number
/// of PCI links on the way.
bool is_nearer(const Path& a, const Path& b);
/// The NIC that is nearest to a GPU (of several the first); kNoPart: there is none.
PartIndex nearest_nic(const Index& index, PartIndex gpu);

}  // namespace troupe::topology
