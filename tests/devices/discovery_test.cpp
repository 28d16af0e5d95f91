#include "devices/discovery/discovery.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "devices/discovery/detail/cgroup.hpp"
#include "devices/discovery/detail/files.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/host_identity.hpp"

namespace troupe {
namespace {

/// What `work` writes in a child process of its own; "failed: ..." when it throws. The child is killed after 30 s.
std::string in_child(const std::function<void(std::ostream&)>& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "failed: pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    std::ostringstream out;
    try {
      work(out);
    } catch (const std::exception& error) {
      out << "failed: " << error.what();
    }
    const std::string answer = out.str();
    const bool written = ::write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size());
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string answer;
  const Deadline deadline = Deadline::after(std::chrono::seconds{30});
  char buffer[4096];
  while (true) {
    pollfd wait{ends[0], POLLIN, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.left()).count();
    if (::poll(&wait, 1, static_cast<int>(left)) <= 0) {
      ::kill(child, SIGKILL);
      answer += "failed: no answer in time";
      break;
    }
    const ssize_t got = ::read(ends[0], buffer, sizeof buffer);
    if (got <= 0) break;
    answer.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return answer;
}

std::set<std::uint32_t> cpus_of(const Topology& topology) {
  std::set<std::uint32_t> cpus;
  for (const Core& core : topology.cores) cpus.insert(core.cpus.begin(), core.cpus.end());
  return cpus;
}

std::set<std::uint32_t> own_affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  std::set<std::uint32_t> cpus;
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.insert(cpu);
  }
  return cpus;
}

TEST(Discovery, SeesTheProcessorsThatThisProcessMayUse) {
  const Topology topology = discover();
  EXPECT_EQ(cpus_of(topology), own_affinity());
  ASSERT_FALSE(topology.numa.empty());
  for (const Core& core : topology.cores) EXPECT_LT(core.numa, topology.numa.size());
  EXPECT_GT(topology.numa[0].memory_bytes, 0u);
  EXPECT_FALSE(topology.host.empty());
}

TEST(Discovery, TakesMillisecondsAndGivesTheSameTwice) {
  discover();  // the first one reads cold files
  const auto start = Clock::now();
  Topology topology = discover();
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
  RecordProperty("discover_us", static_cast<int>(took.count()));
  std::cout << "discover() took " << took.count() << " us\n";
  EXPECT_LT(took, std::chrono::seconds{2});
  Topology again = discover();
  topology.nics.clear();  // other tests make and remove interfaces
  again.nics.clear();
  EXPECT_EQ(topology, again);
}

TEST(Discovery, AProcessHeldToOneProcessorSeesOneCore) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer's own thread keeps the processors it started with";
#endif
  const std::uint32_t cpu = *own_affinity().rbegin();
  const std::string answer = in_child([&](std::ostream& out) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    TROUPE_CHECK_ERRNO(::sched_setaffinity(0, sizeof set, &set) == 0, Code::environment, "affinity");
    const Topology topology = discover();
    out << topology.cores.size() << " core: index " << topology.cores.at(0).index << " cpu "
        << topology.cores.at(0).cpus.at(0);
  });
  std::uint32_t index = ~0u;  // the same number as without the mask
  for (const Core& core : discover().cores) {
    if (core.cpus.back() == cpu || core.cpus.front() == cpu) index = core.index;
  }
  EXPECT_EQ(answer, text("1 core: index ", index, " cpu ", cpu));
}

TEST(Discovery, LooksLeaveTheAffinityAsItWas) {
  const auto before = own_affinity();
  discover();
  EXPECT_EQ(own_affinity(), before);
}

TEST(Discovery, TheIdentityIsThatOfTheTopology) {
  const NodeIdentity identity = own_node_identity();
  EXPECT_EQ(identity, discover().identity);
  EXPECT_EQ(identity.boot_id.size(), 36u);
  EXPECT_NE(identity.network_namespace, 0u);
  EXPECT_NE(pid_namespace(), 0u);
}

/// Enters a fresh network namespace; with `remount` /sys shows it too, as `ip netns exec` does.
void enter_new_network(bool remount) {
  TROUPE_CHECK_ERRNO(::unshare(CLONE_NEWNET | CLONE_NEWNS) == 0, Code::environment, "unshare");
  if (!remount) return;
  TROUPE_CHECK_ERRNO(::mount("", "/", "none", MS_REC | MS_SLAVE, nullptr) == 0, Code::environment, "slave mount");
  TROUPE_CHECK_ERRNO(::umount2("/sys", MNT_DETACH) == 0, Code::environment, "umount /sys");
  TROUPE_CHECK_ERRNO(::mount("sys", "/sys", "sysfs", 0, nullptr) == 0, Code::environment, "mount /sys");
}

bool may_make_namespaces() {
  return in_child([](std::ostream& out) {
           enter_new_network(true);
           out << "yes";
         }) == "yes";
}

TEST(Discovery, AnotherNetworkNamespaceIsAnotherNodeWithItsOwnInterfaces) {
  if (!may_make_namespaces()) GTEST_SKIP() << "network namespaces need root";
  const Topology here = discover();
  for (const bool remount : {true, false}) {
    const std::string answer = in_child([&](std::ostream& out) {
      enter_new_network(remount);
      const Topology there = discover();
      out << (there.identity.boot_id == here.identity.boot_id ? "same boot" : "other boot") << ", "
          << (there.identity == here.identity ? "same node" : "other node") << ", "
          << (there.cores == here.cores ? "same cores" : "other cores") << ", nics";
      for (const Nic& nic : there.nics) {
        if (nic.name == "lo") out << " lo " << (nic.up ? "up" : "down") << (nic.loopback ? " loopback" : "");
        if (!nic.loopback && nic.up) out << " " << nic.name;
      }
    });
    EXPECT_EQ(answer, "same boot, other node, same cores, nics lo down loopback") << "remount " << remount;
  }
}

TEST(Discovery, InterfacesComeWithAddressStateAndSpeed) {
  if (!may_make_namespaces()) GTEST_SKIP() << "network namespaces need root";
  const std::string answer = in_child([&](std::ostream& out) {
    enter_new_network(true);
    const int made = std::system(
        "ip link set lo up && ip link add v0 type veth peer name v1 && ip addr add fd00::1/64 dev v0 nodad && "
        "ip addr add 10.99.0.1/24 dev v0 && ip link set v0 up && ip link set v1 up && ip link add v2 type veth peer "
        "name v3");
    if (made != 0) out << "skip";
    const auto is_up = [](const Topology& topology) {
      return std::any_of(topology.nics.begin(), topology.nics.end(),
                         [](const Nic& nic) { return nic.name == "v0" && nic.up; });
    };
    Topology topology = discover();
    for (const Deadline deadline = Deadline::after(std::chrono::seconds{10});
         made == 0 && !is_up(topology) && !deadline.passed();) {
      topology = discover();  // the kernel tells of a carrier a little later
    }
    for (const Nic& nic : topology.nics) {
      if (made == 0 && (nic.loopback || nic.name == "v0" || nic.name == "v2")) {
        out << nic.name << " '" << nic.address << "' " << (nic.up ? "up " : "down ")
            << (nic.loopback ? "loopback " : "") << nic.bits_per_second << " numa " << nic.numa << " '"
            << nic.infiniband << "'; ";
      }
    }
  });
  if (answer == "skip") GTEST_SKIP() << "ip cannot make a veth pair here";
  EXPECT_EQ(answer,
            "lo '127.0.0.1' up loopback 0 numa -1 ''; v0 '10.99.0.1' up 10000000000 numa -1 ''; v2 '' down 0 "
            "numa -1 ''; ");
}

TEST(Discovery, AThreadInAnotherNetworkNamespaceIsOnThatNode) {
  if (!may_make_namespaces()) GTEST_SKIP() << "network namespaces need root";
  const std::string answer = in_child([&](std::ostream& out) {
    const NodeIdentity before = own_node_identity();
    TROUPE_CHECK_ERRNO(::unshare(CLONE_NEWNET) == 0, Code::environment, "unshare");
    out << (own_node_identity() == before ? "same" : "other");
  });
  EXPECT_EQ(answer, "other");
}

/// A version 1 group with half a core, removed at the end; empty where that cannot be.
class HalfACore {
 public:
  HalfACore() {
    const std::string folder = "/sys/fs/cgroup/cpu/troupe-discovery-" + std::to_string(::getpid());
    std::error_code none;
    if (!std::filesystem::exists("/sys/fs/cgroup/cpu/cgroup.procs", none)) return;
    if (!std::filesystem::create_directory(folder, none)) return;
    folder_ = folder;
    if (!put("cpu.cfs_period_us", "100000") || !put("cpu.cfs_quota_us", "50000")) usable_ = false;
  }
  ~HalfACore() {
    std::error_code none;
    if (!folder_.empty()) ::rmdir(folder_.c_str());
  }
  bool usable() const { return !folder_.empty() && usable_; }
  bool put(const std::string& file, const std::string& content) const {
    std::ofstream out{folder_ + "/" + file};
    out << content << std::flush;
    return out.good();
  }

 private:
  std::string folder_;
  bool usable_ = true;
};

TEST(Discovery, AControlGroupsQuotaIsSeen) {
  const HalfACore group;
  if (!group.usable()) GTEST_SKIP() << "no writable cgroup (version 1) with the cpu controller";
  const std::string answer = in_child([&](std::ostream& out) {
    TROUPE_CHECK(group.put("cgroup.procs", std::to_string(::getpid())), Code::environment, "cannot join the group");
    out << discover().cpu_quota;
  });
  EXPECT_EQ(answer, "0.5");
}

detail::FileReader files(std::map<std::string, std::string> all) {
  return [all = std::move(all)](const std::string& path) -> std::optional<std::string> {
    const auto at = all.find(path);
    return at == all.end() ? std::nullopt : std::optional{at->second};
  };
}

constexpr const char* kVersion2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kVersion1 =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro master:9 - cgroup cgroup rw,cpu,cpuacct\n";

TEST(CpuQuota, OfVersion2IsTheLeastOnTheWayUp) {
  const auto read =
      files({{"/sys/fs/cgroup/a/b/cpu.max", "400000 100000"}, {"/sys/fs/cgroup/a/cpu.max", "150000 100000"}});
  EXPECT_DOUBLE_EQ(detail::cpu_quota("0::/a/b\n", kVersion2, read), 1.5);
}

TEST(CpuQuota, OfMaxOrMinusOneIsNone) {
  EXPECT_EQ(detail::cpu_quota("0::/a\n", kVersion2, files({{"/sys/fs/cgroup/a/cpu.max", "max 100000"}})), 0);
  const auto read = files({{"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1"},
                           {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000"}});
  EXPECT_EQ(detail::cpu_quota("4:cpu,cpuacct:/docker/abc\n", kVersion1, read), 0);
}

TEST(CpuQuota, OfVersion1InAContainerIsThatOfTheMountsRoot) {
  const auto read = files({{"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000"},
                           {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000"}});
  EXPECT_DOUBLE_EQ(detail::cpu_quota("5:cpuset:/\n4:cpu,cpuacct:/docker/abc\n", kVersion1, read), 2.5);
  EXPECT_DOUBLE_EQ(detail::cpu_quota("4:cpu,cpuacct:/\n", kVersion1, read), 2.5);
}

TEST(CpuQuota, OfNonsenseIsNone) {
  EXPECT_EQ(detail::cpu_quota("", "", files({})), 0);
  EXPECT_EQ(detail::cpu_quota("0::", "x - cgroup2\n29 23 0:26 /\n", files({})), 0);
  EXPECT_EQ(detail::cpu_quota("::::\n0::no/slash", kVersion2, files({{"/sys/fs/cgroup/cpu.max", "0 0"}})), 0);
}

/// The counts of one line of the manifest.
struct Machine {
  std::string file;
  std::size_t packages = 0, numa = 0, cores = 0, cpus = 0;
};

std::vector<Machine> machines(const std::string& folder) {
  std::vector<Machine> all;
  std::ifstream in{folder + "/MANIFEST.tsv"};
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream fields{line};
    Machine machine;
    std::string format, version;
    fields >> machine.file >> format >> version >> machine.packages >> machine.numa >> machine.cores >> machine.cpus;
    if (fields && format == "hwloc" && version[0] == '2' && machine.file.starts_with("hwloc/")) all.push_back(machine);
  }
  return all;
}

TEST(Discovery, ReadsTheProcessorsOfRealMachines) {
  const char* set = std::getenv("TROUPE_TOPOLOGIES");
  const std::string folder = set != nullptr ? set : TROUPE_SOURCE_DIR "/../shared/topologies";
  if (!std::filesystem::exists(folder + "/MANIFEST.tsv")) GTEST_SKIP() << "no topology files in " << folder;
  const auto all = machines(folder);
  EXPECT_FALSE(all.empty());
  for (const Machine& machine : all) {
    const std::string answer = in_child([&](std::ostream& out) {
      ::unsetenv("HWLOC_COMPONENTS");  // with it, hwloc does not look at the next one
      ::setenv("HWLOC_XMLFILE", (folder + "/" + machine.file).c_str(), 1);
      const Topology topology = discover();
      std::set<std::uint32_t> packages;
      for (const Core& core : topology.cores) packages.insert(core.package);
      out << packages.size() << " packages, " << topology.numa.size() << " NUMA nodes, " << topology.cores.size()
          << " cores, " << cpus_of(topology).size() << " cpus";
    });
    // If the file of a machine has no cores, every processor is one; if it has no package, there is one.
    const std::size_t cores = machine.cores != 0 ? machine.cores : machine.cpus;
    const std::size_t packages = std::max<std::size_t>(machine.packages, 1);
    EXPECT_EQ(answer,
              text(packages, " packages, ", machine.numa, " NUMA nodes, ", cores, " cores, ", machine.cpus, " cpus"))
        << machine.file;
  }
}

}  // namespace
}  // namespace troupe
