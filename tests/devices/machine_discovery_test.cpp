// This host as a machine; GPUs through a stand-in for NVIDIA's library; /sys and /proc from made-up folders.

#include "devices/discovery/machine_discovery.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "devices/discovery/detail/cgroup.hpp"
#include "devices/discovery/detail/nvml.hpp"
#include "devices/discovery/detail/system_files.hpp"
#include "devices/discovery/discovery.hpp"
#include "runtime/base/text.hpp"
#include "runtime/planning/machine_topology.hpp"
#include "runtime/topology/doctor.hpp"
#include "runtime/topology/hwloc_xml.hpp"
#include "runtime/topology/machine_json.hpp"
#include "runtime/topology/reading.hpp"
#include "tests/runtime/topology/machines.hpp"

namespace troupe {
namespace {

using namespace topology;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(MachineDiscovery, SeesWhatAPlanSeesOfThisHost) {
  const Machine machine = discover_machine();
  check(machine, "this host");
  const Topology small = planning_topology(machine);
  const Topology known = discover();
  EXPECT_EQ(small.cores, known.cores);
  EXPECT_EQ(small.numa, known.numa);
  EXPECT_EQ(small.cpu_model, known.cpu_model);
  EXPECT_EQ(small.l2_bytes, known.l2_bytes);
  EXPECT_EQ(small.l3_bytes, known.l3_bytes);
  EXPECT_EQ(small.cpu_quota, known.cpu_quota);
  EXPECT_EQ(small.memory_limit_bytes, known.memory_limit_bytes);
  EXPECT_TRUE(machine_from(to_json(machine), "again") == machine);
  EXPECT_TRUE(machine_from(to_hwloc_xml(machine), "again") == machine);
  EXPECT_FALSE(machine.system.kernel.empty());
  EXPECT_TRUE(machine.limits.open_files.has_value());
}

/// two_sockets() as hwloc alone sees it, then as the library in this state tells.
Machine with_nvml(const char* state) {
  Machine machine = topology::testing::two_sockets();
  machine.links.clear();
  for (Gpu& gpu : machine.gpus) gpu = {.part = gpu.part, .vendor = "nvidia"};
  ::setenv("TROUPE_NVML_STAND_IN", state, 1);
  detail::add_nvml(machine, NVML_STAND_IN);
  ::unsetenv("TROUPE_NVML_STAND_IN");
  check(machine, state);
  return machine;
}

std::vector<std::string> findings(const Machine& machine) {
  std::vector<std::string> ids;
  for (const Finding& finding : examine(std::vector{machine})) ids.push_back(finding.rule);
  return ids;
}

TEST(Nvml, TellsOfHealthyGpusJoinedByBusId) {
  const Machine machine = with_nvml("healthy");
  EXPECT_EQ(machine.system.gpu_driver, "550.54.15");
  const Gpu& gpu = machine.gpus[2];
  EXPECT_EQ(gpu.state, GpuState::ok);
  EXPECT_EQ(gpu.model, "Stand-in 2");
  EXPECT_EQ(gpu.memory_bytes, 40ULL << 30);
  EXPECT_EQ(gpu.architecture, "sm_80");
  EXPECT_EQ(gpu.clock_mhz, 1410u);
  EXPECT_EQ(gpu.cores, 6912u);
  EXPECT_EQ(gpu.most_memory_clock_mhz, 1215u);
  EXPECT_EQ(gpu.memory_bus_bits, 5120u);
  EXPECT_EQ(gpu.utilization_percent, 55u);
  ASSERT_EQ(machine.links.size(), 4u);
  EXPECT_EQ(machine.links[0],
            (AcceleratorLink{.from = machine.gpus[0].part, .to = "0000:13:00.0", .to_class = 0x030200, .lanes = 4}));
  EXPECT_THAT(findings(machine), IsEmpty());
}

TEST(Nvml, TellsOfADegradedLinkAndAHotGpu) {
  const Machine machine = with_nvml("degraded");
  EXPECT_EQ(machine.links[1].lanes_down, 1u);
  EXPECT_THAT(findings(machine), Contains("link-lanes-down"));
  EXPECT_THAT(findings(machine), Contains("gpu-throttled"));
}

TEST(Nvml, TellsOfAGpuThatFellOffTheBusAndKeepsTheOthers) {
  const Machine machine = with_nvml("lost");
  EXPECT_EQ(machine.gpus[3].state, GpuState::lost);
  EXPECT_EQ(machine.gpus[2].state, GpuState::ok);
  EXPECT_THAT(findings(machine), Contains("gpu-lost"));
}

TEST(Nvml, TellsOfAGpuThatThisUserMayNotUse) {
  const Machine machine = with_nvml("no_permission");
  EXPECT_EQ(machine.gpus[3].state, GpuState::no_permission);
  EXPECT_THAT(findings(machine), Contains("gpu-lost"));
}

TEST(Nvml, TellsOfGpusThatAreDivided) {
  const Machine machine = with_nvml("mig");
  EXPECT_EQ(machine.gpus[0].mig, true);
  EXPECT_THAT(machine.links, IsEmpty());
  EXPECT_THAT(findings(machine), ElementsAre("gpu-in-instances"));
}

TEST(Nvml, WithoutADriverOrALibraryNothingIsKnown) {
  EXPECT_EQ(with_nvml("no_driver").gpus[0].state, GpuState::unknown);
  Machine machine = topology::testing::two_sockets();
  const Machine before = machine;
  detail::add_nvml(machine, "/nowhere/libnvidia-ml.so.1");
  EXPECT_TRUE(machine == before);
}

class MadeUpSystem : public ::testing::Test {
 protected:
  ~MadeUpSystem() override { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path{root_ + path}.parent_path());
    std::ofstream{root_ + path} << content;
  }
  void link(const std::string& path, const std::string& to) {
    std::filesystem::create_directories(std::filesystem::path{root_ + path}.parent_path());
    std::filesystem::create_symlink(to, root_ + path);
  }
  std::string root_ = ::testing::TempDir() + "made_up_system_" + std::to_string(::getpid());
};

TEST_F(MadeUpSystem, TellsOfPciLinksNowAndPossibleAndOfVirtualFunctions) {
  Machine machine = topology::testing::two_sockets();
  const std::string gpu = "/sys/bus/pci/devices/0000:12:00.0/";
  put(gpu + "current_link_speed", "8.0 GT/s PCIe\n");
  put(gpu + "current_link_width", "8\n");
  put(gpu + "max_link_speed", "16.0 GT/s PCIe\n");
  put(gpu + "max_link_width", "16\n");
  link("/sys/bus/pci/devices/0000:24:00.0/physfn", "../0000:14:00.0");
  detail::add_pci_files(machine, root_);
  const Index index{machine};
  EXPECT_EQ(machine.parts[index.at_bus("0000:12:00.0")].pci->now, (PciLink{.gigatransfers = 8, .lanes = 8}));
  EXPECT_EQ(machine.parts[index.at_bus("0000:12:00.0")].pci->possible, (PciLink{.gigatransfers = 16, .lanes = 16}));
  EXPECT_EQ(machine.parts[index.at_bus("0000:24:00.0")].pci->physical_function, "0000:14:00.0");
  EXPECT_THAT(findings(machine), Contains("pci-below-capability"));
}

TEST_F(MadeUpSystem, TellsOfPortsDriversAndFirmware) {
  Machine machine = topology::testing::two_sockets();
  machine.nics[0].ports.clear();
  machine.nics[0].interfaces.push_back({.name = "ib0"});
  const std::string device = "/sys/class/infiniband/mlx5_0/";
  put("/sys/bus/pci/devices/0000:14:00.0/infiniband/mlx5_0/x", "");
  link("/sys/bus/pci/devices/0000:14:00.0/driver", "../../drivers/mlx5_core");
  put(device + "fw_ver", "20.35.1012\n");
  put(device + "ports/1/state", "4: ACTIVE\n");
  put(device + "ports/1/rate", "200 Gb/sec (4X HDR)\n");
  put(device + "ports/1/link_layer", "InfiniBand\n");
  put("/sys/class/net/ib0/mtu", "2044\n");
  put("/sys/class/net/ib0/operstate", "up\n");
  detail::add_nic_files(machine, root_, nullptr);
  const topology::Nic& nic = machine.nics[0];
  EXPECT_EQ(nic.driver, "mlx5_core");
  EXPECT_EQ(nic.firmware, "20.35.1012");
  ASSERT_EQ(nic.ports.size(), 1u);
  EXPECT_EQ(nic.ports[0].bits_per_second, 200'000'000'000u);
  EXPECT_EQ(nic.ports[0].active, true);
  EXPECT_EQ(nic.interfaces[0].mtu_bytes, 2044u);
  EXPECT_EQ(nic.interfaces[0].up, true);
}

class MadeUpProcesses : public MadeUpSystem {
 protected:
  struct Process {
    int pid = 0;
    std::vector<std::string> environment;
    int size_kilobytes = 0;
    int parent = 1;
  };
  void add(const Process& process) {
    const std::string folder = "/proc/" + std::to_string(process.pid);
    std::string environment;
    for (const std::string& entry : process.environment) environment += entry + '\0';
    put(folder + "/environ", environment);
    put(folder + "/status", text("Name:\tx\nPPid:\t", process.parent, "\nVmRSS:\t", process.size_kilobytes,
                                 " kB\nCpus_allowed_list:\t8-15\n"));
    put(folder + "/numa_maps",
        "7f00 default anon=3 N0=2 N1=1 kernelpagesize_kB=4\n7f01 default N1=1 kernelpagesize_kB=2048\n");
  }
  std::vector<RankPlace> ranks() {
    Machine machine = topology::testing::two_sockets();
    detail::add_ranks(machine, root_);
    return machine.ranks;
  }
  /// Of the ranks' processes.
  std::vector<std::int32_t> pids() {
    std::vector<std::int32_t> all;
    for (const RankPlace& place : ranks()) all.push_back(place.pid);
    return all;
  }
};

TEST_F(MadeUpProcesses, OfARankSayWhereItRunsAndWhatItUses) {
  const std::vector<std::string> rank{"RANK=5", "LOCAL_RANK=2", "UCX_NET_DEVICES=mlx5_1:1", "UCX_TLS=tcp"};
  add({40, rank, 1000});   // a shell
  add({41, rank, 90000});  // and the program that it started
  add({50, {"HOME=/"}, 5});
  ASSERT_EQ(ranks().size(), 1u);
  const RankPlace place = ranks()[0];
  EXPECT_EQ(place.rank, 5u);
  EXPECT_EQ(place.pid, 41);
  EXPECT_EQ(place.cpus.list(), "8-15");
  EXPECT_EQ(place.gpu, "0000:22:00.0");
  EXPECT_EQ(place.nic, "mlx5_1:1");
  EXPECT_EQ(place.transports, "tcp");
  EXPECT_EQ(place.numa_bytes.at(0), 8192u);
  EXPECT_EQ(place.numa_bytes.at(1), 4096u + (2 << 20));
}

TEST_F(MadeUpProcesses, OfSeveralJobsAreToldApartByTheLauncherAndByWhereRanksMeet) {
  add({41, {"RANK=5"}, 90000});
  add({42, {"RANK=5", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=4242"}, 95000});
  add({43, {"PMIX_RANK=5", "PMIX_NAMESPACE=job"}, 100});
  add({44, {"SLURM_PROCID=5", "SLURM_JOB_ID=7", "SLURM_STEP_ID=0"}, 100});
  add({45, {"SLURM_PROCID=5", "SLURM_JOB_ID=7", "SLURM_STEP_ID=1"}, 100});
  EXPECT_THAT(pids(), UnorderedElementsAre(41, 42, 43, 44, 45));
}

TEST_F(MadeUpProcesses, ThatStartARankAreNoRanks) {
  const std::vector<std::string> shell{"PMIX_RANK=6", "PMIX_NAMESPACE=job"};
  add({43, shell, 99000});
  add({44, {"RANK=6", "PMIX_RANK=6", "PMIX_NAMESPACE=job", "MASTER_PORT=4242"}, 95000, 43});
  add({45, {"RANK=6", "PMIX_RANK=6", "PMIX_NAMESPACE=job", "MASTER_PORT=4242"}, 5000, 44});  // that the rank started
  EXPECT_THAT(pids(), ElementsAre(44));
}

TEST_F(MadeUpProcesses, OfTwoJobsInOneInteractiveAllocationAreAllSeen) {
  const std::vector<std::string> shell{"SLURM_PROCID=0", "SLURM_JOB_ID=7", "SLURM_STEP_ID=0"};
  add({60, shell, 4000});
  for (const int job : {0, 1}) {
    const int rtrun = 70 + 10 * job;
    add({rtrun, shell, 20000, 60});
    for (const int rank : {0, 1}) {
      std::vector<std::string> environment = shell;
      for (const std::string& more :
           {text("RANK=", rank), std::string{"MASTER_ADDR=127.0.0.1"}, text("MASTER_PORT=", 4000 + job)})
        environment.push_back(more);
      add({rtrun + 1 + rank, environment, 90000, rtrun});
    }
  }
  EXPECT_THAT(pids(), UnorderedElementsAre(71, 72, 81, 82));
}

TEST_F(MadeUpSystem, TellsOfSettingsAndOfGpusWithoutADeviceFile) {
  Machine machine = topology::testing::two_sockets();
  put("/proc/sys/kernel/osrelease", "6.1.0\n");
  put("/proc/sys/kernel/numa_balancing", "1\n");
  put("/proc/modules", "ext4 1 2 - Live 0x0\n");
  put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "ondemand\n");
  for (const char* number : {"0", "1", "2"}) put(std::string("/dev/nvidia") + number, "");
  detail::add_system_files(machine, root_);
  EXPECT_EQ(machine.system.kernel, "6.1.0");
  EXPECT_THAT(machine.system.gpus_without_file, ElementsAre("0000:23:00.0"));
  const auto ids = findings(machine);
  for (const char* rule : {"numa-balancing", "governor", "no-gpudirect", "gpu-not-in-container"})
    EXPECT_THAT(ids, Contains(rule));
}

TEST(Cgroup, MemoryIsBoundByTheLeastOfAllGroupsAbove) {
  const auto read = [](const std::string& path) -> std::optional<std::string> {
    if (path == "/cg/a/b/memory.max") return "max";
    if (path == "/cg/a/memory.max") return "4096";
    return std::nullopt;
  };
  EXPECT_EQ(detail::memory_limit("0::/a/b\n", "1 2 0:1 / /cg rw - cgroup2 cgroup2 rw\n", read), 4096u);
  EXPECT_EQ(detail::memory_limit("0::/\n", "1 2 0:1 / /cg rw - cgroup2 cgroup2 rw\n", read), ~std::uint64_t{0});
}

}  // namespace
}  // namespace troupe
