// Ways between parts, and the orders that collectives take over them.

#include "runtime/topology/paths.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>

#include "runtime/topology/reading.hpp"
#include "runtime/topology/rings_and_trees.hpp"
#include "tests/runtime/topology/machines.hpp"

namespace troupe::topology {
namespace {

using testing::two_sockets;

std::string between(const Machine& machine, std::string_view a, std::string_view b) {
  const Index index{machine};
  return text_of(best_path(index, index.at_bus(a), index.at_bus(b)));
}

TEST(Paths, ClassesAreThoseOfWhatLiesBetween) {
  for (const bool whole : {false, true}) {
    Machine machine = two_sockets(whole);
    EXPECT_EQ(between(machine, "0000:12:00.0", "0000:13:00.0"), "NV4");
    EXPECT_EQ(between(machine, "0000:12:00.0", "0000:14:00.0"), "PIX");
    EXPECT_EQ(between(machine, "0000:12:00.0", "0000:22:00.0"), "SYS");
    EXPECT_EQ(between(machine, "0000:12:00.0", "0000:24:00.0"), "SYS");
    machine.links.clear();
    EXPECT_EQ(between(machine, "0000:12:00.0", "0000:13:00.0"), "PIX");
  }
}

TEST(Paths, SeveralSwitchesAHostBridgeAndTheProcessorAreToldApart) {
  Machine machine = two_sockets(true);
  // GPU 13 behind a switch of its own; GPU 12 and the NIC directly at the processor.
  const Index index{machine};
  const PartIndex up = index.at_bus("0000:10:00.0");
  Part inner = machine.parts[up];
  inner.parent = up;
  inner.pci->bus = "0000:11:00.0";
  const PartIndex at = index.at_bus("0000:13:00.0");
  machine.parts[at].pci->bus = "0000:11:00.0";
  machine.parts[at].kind = PartKind::pci_switch;
  machine.parts.insert(machine.parts.begin() + at + 1, machine.parts[at]);
  machine.parts[at + 1].kind = PartKind::pci_function;
  machine.parts[at + 1].pci->bus = "0000:13:00.0";
  for (PartIndex i = at + 2; i < machine.parts.size(); ++i)
    if (machine.parts[i].parent > at) ++machine.parts[i].parent;
  machine.parts[at + 1].parent = at;
  machine.links.clear();
  machine.gpus.clear();
  machine.nics.clear();
  describe_devices(machine);
  check(machine, "made");
  EXPECT_EQ(between(machine, "0000:13:00.0", "0000:12:00.0"), "PXB");

  Machine flat = two_sockets(true);
  for (Part& part : flat.parts) {
    if (part.kind != PartKind::pci_function) continue;
    while (flat.parts[part.parent].kind == PartKind::pci_switch) part.parent = flat.parts[part.parent].parent;
  }
  flat.links.clear();
  EXPECT_EQ(between(flat, "0000:12:00.0", "0000:13:00.0"), "PHB");
}

TEST(Paths, TheNvSwitchesOfAMachineAreOneFabric) {
  Machine machine = two_sockets();
  for (std::size_t i = 0; i < 4; ++i) {
    machine.links[i].to = i < 2 ? "0000:50:00.0" : "0000:60:00.0";  // each half has its own switch, as in a DGX-2
    machine.links[i].to_class = kNvSwitchClass;
  }
  EXPECT_EQ(between(machine, "0000:12:00.0", "0000:13:00.0"), "NV4");
  EXPECT_EQ(between(machine, "0000:12:00.0", "0000:23:00.0"), "NV4");
  for (AcceleratorLink& link : machine.links) link.to_class = 0x058000;  // not a switch: a processor's port
  EXPECT_EQ(between(machine, "0000:12:00.0", "0000:23:00.0"), "SYS");
}

TEST(Paths, TheSlowestThingOnTheWayIsNamed) {
  Machine machine = two_sockets();
  machine.links.clear();
  const Index before{machine};
  const PartIndex gpu = before.at_bus("0000:12:00.0");
  machine.parts[gpu].pci->now.lanes = 4;
  const Index index{machine};
  const Path path = best_path(index, gpu, index.at_bus("0000:13:00.0"));
  EXPECT_EQ(path.slowest, "the PCI link of GPU 0 (16 GT/s x4)");
  EXPECT_NEAR(path.bytes_per_second, 16e9 * 128 / 130 / 8 * 4 * kPciEfficiency, 1e6);
  EXPECT_FALSE(path.assumed);
}

TEST(Paths, LanesThatAreDownDoNotCarryAnything) {
  Machine machine = two_sockets();
  const double whole = best_path(Index{machine}, machine.gpus[0].part, machine.gpus[1].part).bytes_per_second;
  for (AcceleratorLink& link : machine.links) link.lanes_down = 3;
  const Index index{machine};
  const auto paths = paths_between(index, machine.gpus[0].part, machine.gpus[1].part);
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_EQ(paths[0].path_class, PathClass::pix);
  EXPECT_NEAR(paths[1].bytes_per_second, whole / 4, 1);
}

TEST(Paths, ADirectLinkIsUsedWhereASwitchIsModelledAsHardlyFaster) {
  Machine machine = two_sockets();
  for (AcceleratorLink& link : machine.links) link.bytes_per_second = 24'000'000'000;
  EXPECT_EQ(between(machine, "0000:12:00.0", "0000:13:00.0"), "NV4") << "PCI Express 4 x16 has 25 GB/s";
  for (AcceleratorLink& link : machine.links) link.bytes_per_second = 20'000'000'000;
  EXPECT_EQ(between(machine, "0000:12:00.0", "0000:13:00.0"), "PIX");
}

TEST(Paths, ANicBehindTheSameSwitchIsTheNearest) {
  const Machine machine = two_sockets();
  const Index index{machine};
  EXPECT_EQ(label_of(index, nearest_nic(index, machine.gpus[0].part)), "mlx5_0");
  EXPECT_EQ(label_of(index, nearest_nic(index, machine.gpus[3].part)), "mlx5_1");
}

TEST(Paths, OfNicsBehindTheSameSwitchesTheOneOverFewerLinksIsTheNearest) {
  const Path near{.path_class = PathClass::pxb, .bytes_per_second = 1e10, .pci_links = {1, 2}};
  Path far = near;
  far.pci_links = {1, 2, 3, 4};
  EXPECT_TRUE(is_nearer(near, far));
  EXPECT_FALSE(is_nearer(far, near));
  EXPECT_FALSE(is_nearer(near, near));
  far.bytes_per_second = 2e10;
  EXPECT_TRUE(is_nearer(far, near));
  Path over_processor = near;
  over_processor.path_class = far.path_class = PathClass::sys;
  over_processor.bytes_per_second = far.bytes_per_second;
  EXPECT_FALSE(is_nearer(over_processor, far));
  const std::string file = TROUPE_SHARED_FOLDER "/topologies/nccl/rccl-topo_16p1h.xml";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not here";
  const Machine machine = machine_from(read_topology_file(file), file);
  const Index index{machine};
  std::vector<std::string> nearest;
  for (std::size_t i = 0; i < 4; ++i) nearest.push_back(label_of(index, nearest_nic(index, machine.gpus[i].part)));
  EXPECT_EQ(nearest, (std::vector<std::string>{"mlx5_0", "mlx5_0", "mlx5_1", "mlx5_1"}));
}

/// The best slowest edge of all rings, by trying each.
double exhaustive(const RateMatrix& rates) {
  std::vector<std::size_t> order(rates.count);
  std::iota(order.begin(), order.end(), 0);
  double best = 0;
  do {
    double slowest = rates.at(order.back(), order.front());
    for (std::size_t i = 1; i < order.size(); ++i) slowest = std::min(slowest, rates.at(order[i - 1], order[i]));
    best = std::max(best, slowest);
  } while (std::next_permutation(order.begin() + 1, order.end()));
  return best;
}

double slowest_edge(const RateMatrix& rates, const std::vector<std::size_t>& order) {
  double slowest = rates.at(order.back(), order.front());
  for (std::size_t i = 1; i < order.size(); ++i) slowest = std::min(slowest, rates.at(order[i - 1], order[i]));
  return slowest;
}

TEST(Rings, TheSlowestEdgeIsThatOfTheBestOfAllRings) {
  std::mt19937 dice{7};
  for (int round = 0; round < 60; ++round) {
    RateMatrix rates{.count = 3 + dice() % 5};
    rates.rates.resize(rates.count * rates.count);
    for (std::size_t i = 0; i < rates.count; ++i)
      for (std::size_t j = 0; j < i; ++j)
        rates.rates[i * rates.count + j] = rates.rates[j * rates.count + i] = 1 + dice() % 4;
    const Ring ring = find_ring(rates);
    EXPECT_TRUE(ring.exact);
    EXPECT_EQ(ring.slowest, exhaustive(rates));
    EXPECT_EQ(slowest_edge(rates, ring.order), ring.slowest);
  }
}

TEST(Rings, OfMembersWhoseLinksLeadOneWayAreRingsToo) {
  Machine machine = two_sockets();
  std::vector<PartIndex> gpus;
  for (const Gpu& gpu : machine.gpus) gpus.push_back(gpu.part);
  machine.links.clear();
  for (std::size_t i = 1; i < gpus.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      machine.links.push_back(
          {.from = gpus[i], .to = machine.parts[gpus[j]].pci->bus, .to_class = 0x030200, .lanes = 18});
  const Index index{machine};
  const RateMatrix rates = rates_between(index, gpus);
  const Ring ring = find_ring(rates);
  ASSERT_EQ(ring.order.size(), gpus.size());
  EXPECT_EQ(ring.slowest, exhaustive(rates));
}

TEST(Rings, OfManyMembersAreFoundAlsoWhereAllRatesDiffer) {
  constexpr std::size_t kMembers = 96;
  std::mt19937 dice{5};
  RateMatrix rates{.count = kMembers, .rates = std::vector<double>(kMembers * kMembers)};
  for (std::size_t i = 0; i < kMembers; ++i)
    for (std::size_t j = 0; j < i; ++j)
      rates.rates[i * kMembers + j] = rates.rates[j * kMembers + i] = 1 + static_cast<double>(dice()) / 1e9;
  const Ring ring = find_ring(rates);
  std::vector<std::size_t> members = ring.order;
  std::ranges::sort(members);
  std::vector<std::size_t> all(kMembers);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(members, all);
  EXPECT_EQ(slowest_edge(rates, ring.order), ring.slowest);
  EXPECT_LE(ring.slowest, find_tree(rates).slowest);
  EXPECT_GT(ring.slowest, 3) << "of rates up to 5.3, each member has some 50 edges of more than 3";
}

TEST(Rings, ATreeNeedsNoSlowerEdgeThanARing) {
  const Machine machine = two_sockets();
  const Index index{machine};
  std::vector<PartIndex> gpus;
  for (const Gpu& gpu : machine.gpus) gpus.push_back(gpu.part);
  const RateMatrix rates = rates_between(index, gpus);
  const Ring ring = find_ring(rates);
  const Tree tree = find_tree(rates);
  EXPECT_EQ(ring.slowest, exhaustive(rates));
  EXPECT_GE(tree.slowest, ring.slowest);
  EXPECT_EQ(tree.parent[0], 0u);
}

TEST(Rings, RealMachinesHaveRingsAtLeastAsFastAsThoseThatNcclFound) {
  const std::string files = TROUPE_SHARED_FOLDER "/topologies/nccl/";
  if (!std::filesystem::exists(files)) GTEST_SKIP() << files << " is not here";
  for (const auto& entry : std::filesystem::directory_iterator{files}) {
    const std::string text = read_topology_file(entry.path());
    if (format_of(text, "file") != Format::nccl_xml) continue;
    const Machine machine = machine_from(text, entry.path().string());
    const Index index{machine};
    std::vector<PartIndex> gpus;
    for (const Gpu& gpu : machine.gpus) gpus.push_back(gpu.part);
    if (gpus.size() < 3) continue;
    const RateMatrix rates = rates_between(index, gpus);
    const Ring ring = find_ring(rates);
    EXPECT_GT(ring.slowest, 0) << entry.path();
    if (gpus.size() <= 8) {
      EXPECT_EQ(ring.slowest, exhaustive(rates)) << entry.path();
    }
    if (entry.path().filename() != "azure-ncv4-topo.xml") continue;
    for (const NcclGraph& graph : graphs_from_nccl_xml(read_topology_file(files + "azure-ncv4-graph.xml"), "graph")) {
      EXPECT_GE(ring.slowest, graph.speed_intra * 1e9);
      for (const auto& channel : graph.channels)
        EXPECT_GE(ring.slowest, slowest_edge(rates, {channel.begin(), channel.end()}));
    }
  }
}

}  // namespace
}  // namespace troupe::topology
