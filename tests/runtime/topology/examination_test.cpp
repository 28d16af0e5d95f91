// The differences between machines, and the problems of one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <pugixml.hpp>
#include <set>
#include <sstream>

#include "runtime/topology/differences.hpp"
#include "runtime/topology/doctor.hpp"
#include "runtime/topology/reading.hpp"
#include "tests/runtime/topology/machines.hpp"

namespace troupe::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::pci_at;
using testing::two_sockets;

std::vector<std::string> names(const std::vector<Difference>& all) {
  std::vector<std::string> out;
  for (const Difference& each : all) out.push_back(each.what);
  return out;
}

TEST(Differences, NamesSerialNumbersAddressesAndOrderDoNotCount) {
  const Machine one = two_sockets();
  Machine other = one;
  other.host = "other";
  for (Gpu& gpu : other.gpus) gpu.serial = gpu.uuid = "another";
  other.parts[0].infos = {{"HostName", "other"}, {"DMIProductSerial", "9"}, {"LinuxCgroup", "/job_9"}};
  for (Part& part : other.parts) part.bytes += part.bytes / 1000;  // a few pages of memory
  other.nics[0].ports[0].guid = "0x77";
  std::reverse(other.gpus.begin(), other.gpus.end());
  std::reverse(other.links.begin(), other.links.end());
  // The second package is listed first.
  std::vector<Part> parts{other.parts[0]};
  std::vector<PartIndex> moved(other.parts.size());
  const auto second = static_cast<PartIndex>(
      std::find_if(one.parts.begin() + 2, one.parts.end(), [](const Part& p) { return p.kind == PartKind::package; }) -
      one.parts.begin());
  for (const auto& [from, to] : {std::pair{second, static_cast<PartIndex>(one.parts.size())}, {PartIndex{1}, second}}) {
    for (PartIndex i = from; i < to; ++i) {
      moved[i] = static_cast<PartIndex>(parts.size());
      parts.push_back(other.parts[i]);
      parts.back().parent = moved[other.parts[i].parent];
    }
  }
  other.parts = parts;
  for (Gpu& gpu : other.gpus) gpu.part = moved[gpu.part];
  for (Nic& nic : other.nics) nic.part = moved[nic.part];
  for (AcceleratorLink& link : other.links) link.from = moved[link.from];
  check(other, "shuffled");
  EXPECT_THAT(names(compare(std::vector{one, other}).differences), IsEmpty());
}

TEST(Differences, OfThreeMachinesTheOneThatDiffersIsNamed) {
  std::vector<Machine> machines(3, two_sockets());
  machines[1].system.kernel = machines[2].system.kernel = machines[0].system.kernel = "6.1";
  machines[1].gpus[2].firmware = "old";
  for (const std::size_t i : {0u, 2u}) machines[i].gpus[2].firmware = "new";
  machines[2].links[0].lanes_down = 1;
  const auto found = compare(machines).differences;
  ASSERT_THAT(names(found), ElementsAre("NVLink of GPU 0000:12:00.0", "firmware of GPU 0000:22:00.0"));
  EXPECT_THAT(found[0].odd, ElementsAre(2u));
  EXPECT_THAT(found[0].values,
              ElementsAre("4 lanes to 0000:13:00.0", "4 lanes to 0000:13:00.0", "3 lanes to 0000:13:00.0"));
  EXPECT_THAT(found[1].odd, ElementsAre(1u));
  EXPECT_THAT(found[1].values, ElementsAre("new", "old", "new"));
}

TEST(Differences, WhatAMachineDoesNotTellIsNoValue) {
  std::vector<Machine> machines(2, two_sockets());
  machines[0].system.kernel = "6.1";
  machines[0].gpus[0].firmware = "new";
  const Comparison found = compare(machines);
  EXPECT_THAT(found.differences, IsEmpty());
  EXPECT_THAT(found.missing, ElementsAre(IsEmpty(), ElementsAre("firmware of GPU 0000:12:00.0", "kernel")));
}

TEST(Differences, TheSystemsVersionCountsBesideTheKernelOnlyWhereItTellsMore) {
  std::vector<Machine> machines(3, two_sockets());
  for (std::size_t i = 0; i < 3; ++i) {
    machines[i].system.kernel = i == 2 ? "6.2" : "6.1";
    machines[i].parts[0].infos = {{"OSVersion", i == 2 ? "#2" : "#1"}};
  }
  EXPECT_THAT(names(compare(machines).differences), ElementsAre("kernel"));
  machines[0].parts[0].infos = {{"OSVersion", "#3"}};
  EXPECT_THAT(names(compare(machines).differences), ElementsAre("OSVersion", "kernel"));
}

TEST(Differences, AListWithoutItsCommonItemsSaysSo) {
  std::vector<Machine> machines(2, two_sockets());
  machines[1].system.kernel = "6.2";
  machines[0].system.kernel = "6.1";
  for (Part& part : machines[0].parts)
    if (part.kind == PartKind::core && part.os_index == 1) part.os_index = 9;
  const auto found = compare(machines).differences;
  ASSERT_THAT(names(found), ElementsAre("cores of package 0", "kernel"));
  EXPECT_TRUE(found[0].partial);
  EXPECT_FALSE(found[1].partial);
}

TEST(Differences, WhereAllDifferNoneIsOddAndNumbersAreInTheirOrder) {
  std::vector<Machine> machines(3, two_sockets());
  for (std::size_t i = 0; i < 3; ++i) machines[i].system.kernel = std::to_string(i);
  for (Part& part : machines[0].parts)
    if (part.kind == PartKind::core && part.os_index < 2) part.os_index += 9;
  const auto found = compare(machines).differences;
  ASSERT_FALSE(found.empty());
  EXPECT_THAT(found.back().odd, IsEmpty());
  EXPECT_EQ(found.front().values[1].find("core 0, core 1"), 0u) << found.front().values[1];
}

TEST(Differences, AMissingDeviceIsToldOnceWithItsPlace) {
  std::vector<Machine> machines(3, two_sockets());
  const Index index{machines[0]};
  Machine& odd = machines[2];
  const PartIndex gone = index.at_bus("0000:24:00.0");  // the last part
  ASSERT_EQ(gone, odd.parts.size() - 1);
  odd.parts.pop_back();
  odd.nics.pop_back();
  const auto found = compare(machines).differences;
  EXPECT_THAT(names(found), ElementsAre("NICs", "places of NICs"));
  for (const Difference& each : found) EXPECT_THAT(each.odd, ElementsAre(2u));
}

TEST(Differences, NodesOfOneClusterDifferInTheCoresThatAreSwitchedOff) {
  const std::string files = TROUPE_SHARED_FOLDER "/topologies/test-only/";
  if (!std::filesystem::exists(files)) GTEST_SKIP() << files << " is not here";
  std::vector<Machine> machines;
  for (const char* name : {"flux-sierra-node0.xml", "flux-sierra-node1.xml", "flux-sierra-node2.xml"})
    machines.push_back(machine_from(read_topology_file(files + name), name));
  const auto found = compare(machines).differences;
  EXPECT_THAT(names(found), ElementsAre("cores of package 0", "cores of package 1", "level 3 caches"));
  EXPECT_THAT(found[2].odd, ElementsAre(2u));  // cores whose neighbour is off have a cache for themselves
  machines.push_back(machine_from(read_topology_file(files + "flux-sierra-early-node2.xml"), "early"));
  const auto more = compare(machines).differences;
  EXPECT_GT(more.size(), found.size());
  EXPECT_THAT(names(more), ::testing::Contains("kernel"));
}

/// Whether the value of an info names one piece of hardware, one host or one moment.
bool names_one_piece(std::string_view name) {
  constexpr std::string_view kWords[] = {"Serial", "UUID", "GUID", "HostName", "Address", "LinuxCgroup"};
  return std::ranges::any_of(kWords, [&](std::string_view word) { return name.find(word) != std::string_view::npos; });
}

/// Turns the order of all parts around, and changes names and serial numbers.
void shuffle(pugi::xml_node node) {
  constexpr std::string_view kParts[] = {"object", "cpu", "pci", "gpu", "nic", "net"};
  std::vector<pugi::xml_node> parts;
  for (const pugi::xml_node child : node.children())
    if (std::ranges::find(kParts, std::string_view{child.name()}) != std::end(kParts)) parts.push_back(child);
  for (const pugi::xml_node part : parts) {
    shuffle(part);
    node.prepend_move(part);
  }
  for (pugi::xml_node info : node.children("info"))
    if (names_one_piece(info.attribute("name").value())) info.attribute("value") = "7";
  if (node.attribute("guid")) node.attribute("guid") = "0x7";
}

TEST(Differences, ARealMachineShuffledAndWithOtherSerialNumbersIsTheSame) {
  const std::string files = TROUPE_SHARED_FOLDER "/topologies/";
  if (!std::filesystem::exists(files)) GTEST_SKIP() << files << " is not here";
  std::size_t changed = 0;
  for (const char* const folder : {"hwloc", "nccl", "test-only"}) {
    for (const auto& entry : std::filesystem::directory_iterator{files + folder}) {
      pugi::xml_document document;
      ASSERT_TRUE(document.load_file(entry.path().c_str(), pugi::parse_default | pugi::parse_doctype));
      if (document.child("graphs")) continue;
      const pugi::xml_node root = document.document_element();
      if (std::string_view{root.name()} == "topology" && !root.attribute("version"))
        while (root.child("object").remove_child("distances")) {
        }  // hwloc 1 numbers their rows by the order of the file
      std::ostringstream before, after;
      document.save(before);
      shuffle(root);
      document.save(after);
      changed += before.str() != after.str();
      const std::vector<Machine> machines{machine_from(before.str(), "before"), machine_from(after.str(), "after")};
      EXPECT_THAT(names(compare(machines).differences), IsEmpty()) << entry.path();
    }
  }
  EXPECT_GE(changed, 40u);
}

/// A machine with all facts known and nothing wrong.
Machine healthy() {
  Machine machine = two_sockets();
  machine.limits.cpu_quota = 0;
  machine.limits.locked_bytes = machine.limits.memory_bytes = ~std::uint64_t{0};
  machine.limits.open_files = 65536;
  machine.system.governor = "performance";
  machine.system.numa_balancing = false;
  machine.system.clock_synchronized = true;
  machine.system.peer_memory = true;
  machine.system.iommu_translates = false;
  for (Part& part : machine.parts)
    if (part.kind == PartKind::pci_bridge) part.pci->acs_redirect = false;
  for (Gpu& gpu : machine.gpus) {
    gpu.utilization_percent = 90;
    gpu.clock_mhz = gpu.most_clock_mhz = 1410;
    gpu.throttle_reasons = 0x4;  // a power cap that somebody set
    gpu.uncorrected_errors = 0;
    gpu.mig = false;
  }
  machine.ranks = {{.rank = 0,
                    .pid = 10,
                    .cpus = CpuSet::from_list("0-7"),
                    .numa_bytes = {{0, 1 << 30}},
                    .gpu = "0000:12:00.0",
                    .nic = "mlx5_0:1"},
                   {.rank = 1,
                    .pid = 11,
                    .cpus = CpuSet::from_list("8-15"),
                    .numa_bytes = {{1, 1 << 30}},
                    .gpu = "0000:22:00.0",
                    .nic = "mlx5_1:1",
                    .transports = "rc,cuda"}};
  machine.system.clock_ahead_ms = -40;
  machine.system.clock_within_ms = 2;
  machine.ranks[1].steps = RankSteps{.steps = 60, .last = 20, .compute_ms = 5, .exchange_ms = 2, .slower_part = {}};
  const auto cpus = CpuSet::from_list("0-3");
  machine.ranks[0].placement = Placement{.threads = {{"rtrun", cpus, cpus},
                                                     {"lane-control", CpuSet::from_list("4"), CpuSet::from_list("4")},
                                                     {"cpu-stream", CpuSet::from_list("2"), cpus},
                                                     {"listener", cpus, cpus}},
                                         .planned_numa = {0},
                                         .pages = {{0, 60}, {1, 4}},
                                         .planned_devices = "mlx5_0:1",
                                         .open_devices = {"mlx5_0:1"}};
  return machine;
}

std::set<std::string> rules_that_fire(const std::vector<Machine>& machines) {
  std::set<std::string> ids;
  for (const Finding& finding : examine(machines)) {
    ids.insert(finding.rule);
    EXPECT_FALSE(finding.evidence.empty());
    EXPECT_FALSE(finding.cure.empty());
  }
  return ids;
}

TEST(Doctor, FindsNothingOnAHealthyMachineOrWhereNobodyLooked) {
  EXPECT_THAT(rules_that_fire({healthy(), healthy()}), IsEmpty());
  EXPECT_THAT(rules_that_fire({two_sockets()}), IsEmpty());
  EXPECT_THAT(rules_that_fire({Machine{}}), IsEmpty());
}

struct Illness {
  const char* rule;
  const char* evidence;
  std::function<void(Machine&)> infect;
};

const std::vector<Illness>& illnesses() {
  static const std::vector<Illness> kAll{
      {"pci-below-capability", "GPU 0 (0000:12:00.0) has a PCI link of 16 GT/s x8; it can have 16 GT/s x16",
       [](Machine& m) { m.parts[m.gpus[0].part].pci->now.lanes = 8; }},
      {"pci-below-capability", "8 GT/s x16", [](Machine& m) { m.parts[m.gpus[0].part].pci->now.gigatransfers = 8; }},
      {"link-lanes-down", "1 of 4 NVLink lanes to 0000:13:00.0 are down",
       [](Machine& m) { m.links[0].lanes_down = 1; }},
      {"link-lanes-down", "has 2 lanes to its neighbours; most of its kind have 4",
       [](Machine& m) { m.links[3].lanes = 2; }},
      {"switch-link-slow", "0000:10:00.0 has a PCI link of 2.5 GT/s x16; what is behind it has 16 GT/s x16",
       [](Machine& m) { pci_at(m, "0000:10:00.0").now.gigatransfers = 2.5; }},
      {"switch-link-slow", "; over it the processors reach GPU 0 (0000:12:00.0)",
       [](Machine& m) { pci_at(m, "0000:10:00.0").now.gigatransfers = 2.5; }},
      {"switch-link-slow", "0000:18:00.0 has a PCI link of 16 GT/s x8; what is behind it has 16 GT/s x16",
       [](Machine& m) { pci_at(m, "0000:18:00.0").now.lanes = 8; }},
      {"rank-far-from-gpu", "rank 0 (pid 10) may run on processors 0-15",
       [](Machine& m) { m.ranks[0].cpus = CpuSet::from_list("0-15"); }},
      {"memory-far", "rank 1 (pid 11) has 512 of 1536 MiB", [](Machine& m) { m.ranks[1].numa_bytes[0] = 512 << 20; }},
      {"nic-far", "rank 0 uses mlx5_1:1",
       [](Machine& m) {
         m.ranks[0].nic = "mlx5_1:1";
         m.ranks[1].nic.clear();
       }},
      {"nic-shared", "ranks 0, 2 use the same NIC",
       [](Machine& m) {
         m.ranks.push_back(m.ranks[0]);
         m.ranks[2].rank = 2;
         m.ranks[2].gpu = "0000:13:00.0";
       }},
      {"threads-off-plan", "rank 0 (pid 10): 2 threads (lane-control, listener) may run on processors 0-15; the plan",
       [](Machine& m) {
         for (const std::size_t thread : {1, 3}) {
           m.ranks[0].placement->threads[thread].cpus = CpuSet::from_list("0-15");
           m.ranks[0].placement->threads[thread].planned = CpuSet::from_list("0-3");
         }
       }},
      {"threads-off-plan", "thread cpu-stream may run on processors 4-5; the plan has 0-3",
       [](Machine& m) { m.ranks[0].placement->threads[2].cpus = CpuSet::from_list("4-5"); }},
      {"memory-off-plan", "16 of 64 sampled pages of its shared memory are on NUMA node 1; the plan has NUMA node 0",
       [](Machine& m) {
         m.ranks[0].placement->pages = {{0, 48}, {1, 16}};
       }},
      {"memory-not-bound", "memory is not bound to NUMA node 0: mbind: Operation not permitted",
       [](Machine& m) { m.ranks[0].placement->memory_refused = "mbind: Operation not permitted"; }},
      {"network-off-plan", "rank 0 (pid 10) uses mlx5_0:1, eth1; the plan has mlx5_0:1",
       [](Machine& m) { m.ranks[0].placement->open_devices.push_back("eth1"); }},
      {"network-off-plan", "uses no network device; the plan",
       [](Machine& m) { m.ranks[0].placement->open_devices.clear(); }},
      {"network-off-plan", "uses eth1, since UCX_NET_DEVICES=eth1; the plan has mlx5_0:1",
       [](Machine& m) {
         m.ranks[0].placement->open_devices = {"eth1"};
         m.ranks[0].placement->chosen_devices = "eth1";
       }},
      {"gpu-shared", "ranks 0, 2 use the same GPU 0000:12:00.0",
       [](Machine& m) {
         m.ranks.push_back(m.ranks[0]);
         m.ranks[2].rank = 2;
         m.ranks[2].nic.clear();
       }},
      {"peer-to-peer-off", "(ACS)",
       [](Machine& m) {
         for (Part& p : m.parts)
           if (p.kind == PartKind::pci_bridge) p.pci->acs_redirect = true;
       }},
      {"peer-to-peer-off", "IOMMU", [](Machine& m) { m.system.iommu_translates = true; }},
      {"no-gpudirect", "no module nvidia_peermem", [](Machine& m) { m.system.peer_memory = false; }},
      {"rdma-unused", "UCX_TLS=tcp", [](Machine& m) { m.ranks[0].transports = "tcp"; }},
      {"counters-rise", "out_of_sequence rose by 12",
       [](Machine& m) { m.nics[0].ports[0].rising["out_of_sequence"] = 12; }},
      {"locked-low", "may lock 64 KiB", [](Machine& m) { m.limits.locked_bytes = 65536; }},
      {"files-low", "may open 1024 files", [](Machine& m) { m.limits.open_files = 1024; }},
      {"quota-low", "grants 1.5 processors' worth of time, but threads may run on 16",
       [](Machine& m) { m.limits.cpu_quota = 1.5; }},
      {"governor", "\"ondemand\"", [](Machine& m) { m.system.governor = "ondemand"; }},
      {"numa-balancing", "moves pages", [](Machine& m) { m.system.numa_balancing = true; }},
      {"gpu-throttled", "runs at 900 of 1410 MHz because it is too hot",
       [](Machine& m) {
         m.gpus[1].throttle_reasons = 0x40;
         m.gpus[1].clock_mhz = 900;
       }},
      {"gpu-memory-errors", "GPU 1 (0000:13:00.0) had 2 uncorrectable",
       [](Machine& m) { m.gpus[1].uncorrected_errors = 2; }},
      {"gpu-lost", "fallen off the bus", [](Machine& m) { m.gpus[3].state = GpuState::lost; }},
      {"gpu-lost", "may not be used", [](Machine& m) { m.gpus[3].state = GpuState::no_permission; }},
      {"gpu-not-in-container", "0000:23:00.0", [](Machine& m) { m.system.gpus_without_file = {"0000:23:00.0"}; }},
      {"gpu-in-instances", "1 of 4 GPUs", [](Machine& m) { m.gpus[0].mig = true; }},
      {"nccl-file-stale", "not here: 0000:99:00.0",
       [](Machine& m) {
         m.system.nccl_file = "t.xml";
         m.system.nccl_file_not_found = {"0000:99:00.0"};
       }},
      {"nccl-file-stale", "cannot be read",
       [](Machine& m) {
         m.system.nccl_file = "t.xml";
         m.system.nccl_file_not_found = {""};
       }},
      {"clock-free", "not synchronized", [](Machine& m) { m.system.clock_synchronized = false; }},
      {"clock-skew", "its clock is 2.5 s behind that of rank 0's machine (within 2 ms)",
       [](Machine& m) { m.system.clock_ahead_ms = -2500; }},
      {"clock-skew", "its clock is 0.14 s ahead of", [](Machine& m) { m.system.clock_ahead_ms = 140; }},
      {"rank-slow",
       "the others waited for rank 1 in 50 of 60 steps: its compute took 5 ms a step, theirs 2 (all its parts: load "
       "0, ",
       [](Machine& m) {
         m.ranks[1].steps->last = 50;
         m.ranks[1].steps->slower_part = "compute";
         m.ranks[1].steps->others_part_ms = 2;
       }},
      {"rank-slow", "in 20 of 60 steps: what it sent came late",
       [](Machine& m) { m.ranks[1].steps->slower_part = "exchange"; }},
      {"port-differs", "mlx5_1 has 100 Gbit/s",
       [](Machine& m) { m.nics[1].ports[0].bits_per_second = 100'000'000'000; }}};
  return kAll;
}

TEST(Doctor, EachRuleFindsWhatItIsForAndNothingElse) {
  std::set<std::string> seen;
  for (const Illness& illness : illnesses()) {
    Machine machine = healthy();
    illness.infect(machine);
    const std::vector<Machine> machines{machine, healthy()};
    EXPECT_THAT(rules_that_fire(machines), ElementsAre(illness.rule)) << illness.evidence;
    const auto findings = examine(machines);
    const bool said = std::any_of(findings.begin(), findings.end(), [&](const Finding& f) {
      return f.evidence.find(illness.evidence) != std::string::npos;
    });
    EXPECT_TRUE(said) << illness.rule << " says: " << (findings.empty() ? "nothing" : findings[0].evidence);
    seen.insert(illness.rule);
  }
  for (const RuleName& rule : doctor_rules())
    EXPECT_TRUE(seen.contains(std::string{rule.id})) << rule.id << " has no test";
  EXPECT_GE(doctor_rules().size(), 18u);
}

TEST(Doctor, HalvesThatDifferInLanesAreADesign) {
  Machine machine = healthy();
  machine.links[2].lanes = machine.links[3].lanes = 3;  // two GPUs of four
  EXPECT_THAT(rules_that_fire({machine}), IsEmpty());
}

TEST(Doctor, SlowLinksThatAreAllAlikeAreToldOnceAsPerhapsMeant) {
  Machine machine = healthy();
  for (const char* bus : {"0000:18:00.0", "0000:19:00.0", "0000:28:00.0"}) pci_at(machine, bus).now.lanes = 2;
  EXPECT_THAT(examine(std::vector{machine}).at(0).evidence, ::testing::Not(HasSubstr("alike")));
  pci_at(machine, "0000:29:00.0").now.lanes = 2;  // the last port above a GPU; NICs are behind the others
  const auto all = examine(std::vector{machine});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_THAT(all[0].evidence, HasSubstr("(all 4 alike: at rest when this was read, or by design)"));
}

TEST(Doctor, OfTheTwoEndsOfASlowLinkOneIsNamedAndTheSlowestLinkIsFirst) {
  Machine machine = healthy();
  for (const char* bus : {"0000:0f:00.0", "0000:10:00.0"}) pci_at(machine, bus).now.lanes = 4;  // root port, switch
  pci_at(machine, "0000:19:00.0").now.lanes = 2;
  const auto found = examine(std::vector{machine});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_THAT(found[0].evidence, HasSubstr("0000:19:00.0 has a PCI link of 16 GT/s x2"));
  EXPECT_THAT(found[1].evidence, ::testing::StartsWith("0000:10:00.0 has a PCI link of 16 GT/s x4"));
}

TEST(Doctor, SaysWhichRulesHadWhatTheyNeed) {
  EXPECT_THAT(applied_rules(std::vector<Machine>(1)), IsEmpty());
  EXPECT_GE(applied_rules(std::vector{healthy()}).size(), 15u);
  EXPECT_LT(applied_rules(std::vector{two_sockets()}).size(), applied_rules(std::vector{healthy()}).size());
}

TEST(Doctor, AClockThatMayBeRightIsNotCalledWrong) {
  Machine machine = healthy();
  machine.system.clock_ahead_ms = 400;
  machine.system.clock_within_ms = 350;
  EXPECT_THAT(rules_that_fire({machine}), IsEmpty());
}

TEST(Doctor, WhatARankLacksDecidesWhatToLookAt) {
  std::set<std::string> cures;
  for (const char* const part : {"load", "compute", "exchange"}) {
    Machine machine = healthy();
    machine.ranks[1].steps->slower_part = part;
    cures.insert(examine(std::vector{machine}).at(0).cure);
  }
  EXPECT_EQ(cures.size(), 3u);
}

TEST(Doctor, AnIdleGpuMayLetItsLinkRest) {
  Machine machine = healthy();
  machine.parts[machine.gpus[0].part].pci->now.gigatransfers = 2.5;
  machine.gpus[0].utilization_percent = 0;
  EXPECT_THAT(rules_that_fire({machine}), IsEmpty());
}

}  // namespace
}  // namespace troupe::topology
