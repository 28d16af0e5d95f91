// The output of rttopo's commands, and their exit codes.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <sstream>

#include "runtime/base/error.hpp"
#include "runtime/topology/machine_json.hpp"
#include "runtime/topology/measurements.hpp"
#include "tests/runtime/topology/machines.hpp"
#include "tools/rttopo/commands.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::rttopo {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Said {
  int code = 0;
  std::string out;
  std::string err;
};

Said rttopo(std::vector<const char*> words) {
  words.insert(words.begin(), "rttopo");
  std::ostringstream out;
  std::ostringstream err;
  const auto parsed = parse_command_line(static_cast<int>(words.size()), words.data(), out, err);
  if (const auto* answered = std::get_if<Answered>(&parsed)) return {answered->exit_code, out.str(), err.str()};
  try {
    const int code = run(std::get<CommandLine>(parsed), out, false);
    return {code, out.str(), err.str()};
  } catch (const Error& error) {
    return {exit_code(error.code()), out.str(), error.what()};
  }
}

class Rttopo : public ::testing::Test {
 protected:
  Rttopo() {
    std::filesystem::create_directories(folder_);
    put("made.json", topology::to_json(topology::testing::two_sockets()));
    topology::Machine odd = topology::testing::two_sockets();
    odd.host = "odd";
    odd.links[0].lanes_down = 2;
    put("odd.json", topology::to_json(odd));
    put("hwloc.xml", topology::testing::kHwloc2);
    put("nccl.xml", topology::testing::kNccl);
    put("graph.xml",
        "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" speedintra=\"12\" typeintra=\"SYS\"><channel><gpu "
        "dev=\"0\"/><gpu dev=\"1\"/></channel></graph></graphs>");
  }
  ~Rttopo() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + '/' + name; }
  void put(const std::string& name, const std::string& content) const { std::ofstream{path(name)} << content; }

  const std::string folder_ = ::testing::TempDir() + "rttopo_test_" + std::to_string(::getpid());
  const std::string made_ = path("made.json");
  const std::string odd_ = path("odd.json");
};

bool is_xml(const std::string& text) { return static_cast<bool>(pugi::xml_document{}.load_string(text.c_str())); }

TEST_F(Rttopo, ShowsWhoSharesASwitchAndWhatIsDegraded) {
  const Said said = rttopo({"show", "-i", odd_.c_str()});
  EXPECT_EQ(said.code, 0);
  EXPECT_THAT(said.out, HasSubstr("switch 0000:10:00.0  2 GPUs and 1 NIC behind it, Broadcom"));
  EXPECT_THAT(said.out, HasSubstr("! 2 of 4 NVLink lanes down"));
  EXPECT_THAT(said.out, HasSubstr("4 cores x 2 threads  processors 0-7"));
  EXPECT_THAT(said.out, HasSubstr("128 GB of memory"));
}

TEST_F(Rttopo, JsonHasCountsAtItsTopForOneMachineAndForSeveral) {
  EXPECT_EQ(json::parse(rttopo({"show", "-i", made_.c_str(), "--json"}).out)["counts"]["gpu_pci"], 4);
  const json both = json::parse(rttopo({"show", "--nodes", (made_ + ":3," + path("hwloc.xml")).c_str(), "--json"}).out);
  EXPECT_EQ(both["schema"], "troupe.cluster");
  EXPECT_EQ(both["counts"]["gpu_pci"], 13);
  EXPECT_EQ(both["machines"][0]["count"], 3);
}

TEST_F(Rttopo, ShowsNcclsGraphsToo) {
  const Said said = rttopo({"show", "-i", path("graph.xml").c_str()});
  EXPECT_THAT(said.out, AllOf(HasSubstr("graph 0 (ring), 12 GB/s a channel"), HasSubstr("0 - 1")));
  EXPECT_EQ(json::parse(rttopo({"show", "-i", path("graph.xml").c_str(), "--json"}).out)["counts"]["packages"], 0);
}

TEST_F(Rttopo, PicturesAreWholeSvg) {
  const std::string svg = path("made.svg");
  EXPECT_EQ(rttopo({"show", "-i", odd_.c_str(), "--svg", svg.c_str()}).code, 0);
  std::ostringstream content;
  content << std::ifstream{svg}.rdbuf();
  EXPECT_TRUE(is_xml(content.str()));
  EXPECT_THAT(content.str(), AllOf(HasSubstr("GPU 3"), HasSubstr("mlx5_1"), HasSubstr("gpu bad"),
                                   HasSubstr("prefers-color-scheme:dark")));
}

TEST_F(Rttopo, MatrixHasClassesRatesARingAndATree) {
  const Said said = rttopo({"matrix", "-i", made_.c_str()});
  EXPECT_THAT(said.out, AllOf(HasSubstr("NV4 80"), HasSubstr("PIX 25.2"), HasSubstr("SYS 10"),
                              HasSubstr("ring  GPU 0 - GPU 1"), HasSubstr("tree  GPU 0 > GPU 1")));
  const json matrix = json::parse(rttopo({"matrix", "-i", made_.c_str(), "--json"}).out);
  EXPECT_EQ(matrix["tables"][0]["cells"][0][1]["class"], "NV4");
  EXPECT_EQ(matrix["ring"]["order"].size(), 4u);
  EXPECT_THAT(said.out, AllOf(HasSubstr("nearest to GPU 0, GPU 1: mlx5_0 (PIX)\n"),
                              HasSubstr("nearest to GPU 2, GPU 3: mlx5_1 (PIX)\n")));
  EXPECT_EQ(matrix["nearest_nics"][1]["nics"], json::array({"mlx5_1"}));
}

TEST_F(Rttopo, ALinkWhoseOtherEndTheDescriptionDoesNotTellIsSaidToBeNotCounted) {
  for (const char* const end : {"0000:12:00.0", "0000:99:00.0"}) {  // GPU 0 itself, and a GPU that is not described
    topology::Machine machine = topology::testing::two_sockets();
    machine.links[0].to = end;
    put("end.json", topology::to_json(machine));
    const std::string file = path("end.json");
    EXPECT_THAT(rttopo({"show", "-i", file.c_str()}).out,
                AllOf(HasSubstr("NVLink: 4 lanes to an end that this description does not tell"),
                      HasSubstr("NVLink: 4 lanes to 1 GPU")));
    const char* const note = "NVLink lanes of GPU 0 are not counted: their other end is not in this description.\n";
    EXPECT_THAT(rttopo({"matrix", "-i", file.c_str()}).out, HasSubstr(note));
    EXPECT_THAT(rttopo({"explain", "gpu0", "gpu2", "-i", file.c_str()}).out, HasSubstr(note));
    EXPECT_THAT(rttopo({"explain", "gpu1", "gpu2", "-i", file.c_str()}).out, Not(HasSubstr("not counted")));
  }
  EXPECT_THAT(rttopo({"matrix", "-i", made_.c_str()}).out, Not(HasSubstr("not counted")));
  topology::Machine machine = topology::testing::two_sockets();
  machine.links.clear();
  machine.distances = {
      {.name = "NVLinkBandwidth", .parts = {machine.gpus[0].part, 1}, .values = {0, 40'000, 40'000, 0}}};
  put("processor.json", topology::to_json(machine));
  const std::string file = path("processor.json");
  EXPECT_THAT(rttopo({"show", "-i", file.c_str()}).out, HasSubstr("NVLink: 40 GB/s to the processor"));
  EXPECT_THAT(rttopo({"matrix", "-i", file.c_str()}).out, Not(HasSubstr("not counted")));
}

TEST_F(Rttopo, WithoutAnyLinksBetweenGpusMatrixSaysWhatThatMeans) {
  topology::Machine machine = topology::testing::two_sockets();
  machine.links.clear();
  put("bare.json", topology::to_json(machine));
  const std::string file = path("bare.json");
  const char* const note =
      "\nThis description has no NVLink or xGMI; if the machine has them, the bandwidths between GPUs";
  EXPECT_THAT(rttopo({"matrix", "-i", file.c_str()}).out, HasSubstr(note));
  EXPECT_THAT(rttopo({"matrix", "-i", made_.c_str()}).out, Not(HasSubstr(note)));
  EXPECT_THAT(rttopo({"matrix", "-i", path("hwloc.xml").c_str()}).out, Not(HasSubstr(note)));  // it has one GPU
  EXPECT_THAT(rttopo({"explain", "gpu0", "gpu1", "-i", file.c_str()}).out,
              HasSubstr("* is the only path in this description.\n"));
}

TEST_F(Rttopo, ATableThatNobodyCouldReadIsLeftOutAndNamed) {
  topology::Machine machine = topology::testing::two_sockets();
  topology::Part gpu = machine.parts[machine.gpus.front().part];
  machine.links.clear();
  machine.gpus.clear();
  for (std::uint32_t i = 0; i < 1024; ++i) {
    gpu.parent = topology::kRoot;
    gpu.pci->bus = fmt::format("{:04x}:{:02x}:00.0", 0x100 + i / 128, i % 128);
    machine.parts.push_back(gpu);
  }
  topology::describe_devices(machine);
  put("many.json", topology::to_json(machine));
  const std::string file = path("many.json");
  const Said said = rttopo({"matrix", "-i", file.c_str()});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out, AllOf(HasSubstr("GPU x GPU: 1,028 x 1,028 are more than the 65,536 cells that a table has; "
                                        "`rttopo explain \"GPU 0\" \"GPU 1027\"`"),
                              HasSubstr("NUMA x NUMA")));
  const json all = json::parse(rttopo({"matrix", "--json", "-i", file.c_str()}).out);
  EXPECT_EQ(all["tables"].size(), 2U);
  EXPECT_FALSE(all.contains("ring"));
  EXPECT_THAT(all["left_out"].get<std::string>(), HasSubstr("GPU x GPU"));
  EXPECT_THAT(rttopo({"export", "--format", "simgrid", "-i", file.c_str()}).err, HasSubstr("a machine has 1028 GPUs"));
}

TEST_F(Rttopo, AMuchSlowerNicIsNotAmongTheNearest) {
  topology::Machine machine = topology::testing::two_sockets();
  const topology::Index index{machine};
  machine.parts[index.at_bus("0000:22:00.0")].pci->class_code = 0x020000;  // GPUs 2 and 3 become NICs beside mlx5_1
  machine.parts[index.at_bus("0000:23:00.0")].pci->class_code = 0x020000;
  machine.nics.push_back({.part = machine.gpus[2].part, .interfaces = {{.name = "eth0"}}});
  machine.nics.push_back({.part = machine.gpus[3].part, .interfaces = {{.name = "eth1"}}});
  machine.gpus.resize(2);
  machine.links.resize(2);
  std::erase_if(machine.nics,
                [](const topology::Nic& nic) { return !nic.ports.empty() && nic.ports[0].device == "mlx5_0"; });
  const auto nearest = [&] {
    put("nics.json", topology::to_json(machine));
    return json::parse(rttopo({"matrix", "-i", path("nics.json").c_str(), "--json"}).out)["nearest_nics"][0]["nics"];
  };
  machine.nics[1].interfaces[0].bits_per_second = 200'000'000'000;
  EXPECT_EQ(nearest().size(), 3u) << "the speed of one is not known, their PCI links are alike";
  machine.nics[2].interfaces[0].bits_per_second = 1'000'000'000;
  EXPECT_EQ(nearest(), json::array({"mlx5_1", "eth0"}));
}

TEST_F(Rttopo, MatrixHasATableForEachKindOfMachine) {
  const std::string nodes = made_ + ":2," + odd_;
  const Said said = rttopo({"matrix", "--nodes", nodes.c_str()});
  EXPECT_EQ(said.code, 0);
  EXPECT_THAT(said.out, AllOf(HasSubstr("2 x " + made_), HasSubstr("1 x " + odd_ + ", odd\nGPU x GPU"),
                              HasSubstr("NV4 80"), HasSubstr("NV2 40")));
  const json machines = json::parse(rttopo({"matrix", "--nodes", nodes.c_str(), "--json"}).out)["machines"];
  ASSERT_EQ(machines.size(), 2u);
  EXPECT_EQ(machines[0]["count"], 2);
  EXPECT_EQ(machines[1]["matrix"]["tables"][0]["cells"][0][1]["class"], "NV2");
}

TEST_F(Rttopo, MatrixExplainsTheSignsThatItUsesAndNoOthers) {
  const std::string out = rttopo({"matrix", "-i", made_.c_str()}).out;
  EXPECT_THAT(out, AllOf(HasSubstr("  NV    NVLink, with the number of lanes\n"),
                         HasSubstr("  PIX   one PCI switch that both are behind\n"), Not(HasSubstr("xGMI")),
                         Not(HasSubstr("measured by")), Not(HasSubstr("NVL ")),
                         HasSubstr("that of a PCI link is 80 % of the rate that `show` prints.\n")));
  topology::Machine machine = topology::testing::two_sockets();
  for (topology::AcceleratorLink& link : machine.links) link.lanes = 0, link.bytes_per_second = 80'000'000'000;
  machine.links[2] = machine.links[1];  // GPU 0 - GPU 1 - GPU 2
  machine.links[2].to = "0000:22:00.0";
  machine.links[3].from = machine.gpus[2].part;
  machine.links[3].to = "0000:13:00.0";
  put("rates.json", topology::to_json(machine));
  EXPECT_THAT(rttopo({"matrix", "-i", path("rates.json").c_str()}).out,
              AllOf(HasSubstr("  NVL   NVLink, whose number of lanes is not known\n"),
                    HasSubstr("  NVB   NVLink or xGMI over another GPU\n")));
}

TEST_F(Rttopo, DoctorDoesNotCallAMachineSoundOfWhichItKnowsNothing) {
  put("bare.json", R"({"schema": "troupe.topology", "version": 1, "parts": [{"kind": "machine"}]})");
  const Said said = rttopo({"doctor", "-i", path("bare.json").c_str()});
  EXPECT_EQ(said.code, 0);
  EXPECT_THAT(said.out, AllOf(HasSubstr("0 of 31 rules could be applied; whether something is wrong is not known"),
                              Not(HasSubstr("nothing wrong"))));
}

TEST_F(Rttopo, DoctorNamesTheRulesThatItCouldApplyWhereTheyAreFew) {
  topology::Machine machine = topology::testing::two_sockets();
  for (topology::Part& part : machine.parts)
    if (part.pci) part.pci->now = part.pci->possible = {};
  machine.nics.clear();
  for (topology::Gpu& gpu : machine.gpus) gpu.state = topology::GpuState::unknown;
  put("lanes.json", topology::to_json(machine));
  const std::string file = path("lanes.json");
  EXPECT_EQ(rttopo({"doctor", "-i", file.c_str()}).out,
            "Only link-lanes-down could be applied, the other 30 rules lack information; it found nothing wrong.\n");
  topology::testing::pci_at(machine, "0000:10:00.0").now = {.gigatransfers = 16, .lanes = 16};
  put("lanes.json", topology::to_json(machine));
  EXPECT_EQ(rttopo({"doctor", "--nodes", (file + ":2").c_str()}).out,
            "Only link-lanes-down and switch-link-slow could be applied to 2 machines, the other 29 rules lack "
            "information; they found nothing wrong.\n");
}

TEST_F(Rttopo, MemoryModulesAreCountedNotListed) {
  topology::Machine machine = topology::testing::two_sockets();
  for (const char* const number : {"A-16", "A-16", "B-32", "NO DIMM"})
    machine.parts.push_back({.kind = topology::PartKind::misc,
                             .parent = topology::kRoot,
                             .subtype = "MemoryModule",
                             .infos = {{"Vendor", "Maker"}, {"PartNumber", number}}});
  put("modules.json", topology::to_json(machine));
  const std::string file = path("modules.json");
  const Said said = rttopo({"show", "-i", file.c_str()});
  EXPECT_THAT(said.out, AllOf(HasSubstr("3 memory modules  2 x Maker A-16, 1 x Maker B-32\n"), Not(HasSubstr("misc"))));
  EXPECT_THAT(rttopo({"show", "-i", file.c_str(), "--all"}).out, HasSubstr("misc 2"));
}

TEST_F(Rttopo, ShowTellsOfAPortThatIsSlowerThanTheDeviceBehindIt) {
  topology::Machine machine = topology::testing::two_sockets();
  topology::testing::pci_at(machine, "0000:18:00.0").now.lanes = 1;
  put("port.json", topology::to_json(machine));
  const std::string file = path("port.json");
  const std::string out = rttopo({"show", "-i", file.c_str()}).out;
  EXPECT_THAT(out, HasSubstr("PCI 16 GT/s x16 = 31.5 GB/s, but 1.97 GB/s at the port 0000:18:00.0 above it, "));
  const auto line = out.find("GPU 0");
  EXPECT_THAT(out.substr(line, out.find('\n', line) - line), HasSubstr("  ! slow PCI link"));
  EXPECT_EQ(out.find("above it", out.find("above it") + 1), std::string::npos);
  EXPECT_THAT(rttopo({"show", "-i", file.c_str(), "--all"}).out,
              AllOf(HasSubstr("port 0000:18:00.0"), HasSubstr("switch 0000:10:00.0"), Not(HasSubstr("above it"))));
}

TEST_F(Rttopo, MatrixMarksEveryPathOverALinkThatDoctorWarnsOf) {
  topology::Machine machine = topology::testing::two_sockets();
  topology::testing::pci_at(machine, "0000:10:00.0").now.lanes = 4;
  topology::testing::pci_at(machine, "0000:12:00.0").now.lanes = 2;  // GPU 0's own link is what limits its paths
  put("slow.json", topology::to_json(machine));
  const std::string file = path("slow.json");
  const json cells = json::parse(rttopo({"matrix", "-i", file.c_str(), "--json"}).out)["tables"][0]["cells"];
  EXPECT_EQ(cells[0][1]["slow"], false);
  EXPECT_EQ(cells[0][2]["slow"], true);
  EXPECT_EQ(cells[2][3]["slow"], false);
}

TEST_F(Rttopo, DoctorTellsOnceWhatSeveralMachinesShare) {
  topology::Machine machine = topology::testing::two_sockets();
  topology::testing::pci_at(machine, "0000:10:00.0").now.lanes = 2;
  put("slow.json", topology::to_json(machine));
  const std::string four = path("slow.json") + ":4";
  const std::string all = rttopo({"doctor", "--nodes", four.c_str()}).out;
  EXPECT_THAT(all, AllOf(HasSubstr("warning  switch-link-slow  on 4 machines: 0000:10:00.0"),
                         HasSubstr("something may be wrong.")));
  EXPECT_EQ(all.find("switch-link-slow", all.find("switch-link-slow") + 1), std::string::npos);
  EXPECT_THAT(rttopo({"doctor", "--nodes", (path("slow.json") + ":2," + made_).c_str()}).out,
              HasSubstr("on 2 machines (made-up (slow.json:0), made-up (slow.json:1)): "));
}

TEST_F(Rttopo, ShowCountsDevicesWhoseKindTheDescriptionDoesNotTell) {
  topology::Machine machine = topology::testing::two_sockets();
  machine.links.clear();
  machine.gpus.clear();
  for (const char* const bus : {"0000:12:00.0", "0000:13:00.0", "0000:22:00.0"})
    topology::testing::pci_at(machine, bus).class_code = 0;
  machine.parts.push_back({.kind = topology::PartKind::pci_function,
                           .parent = topology::kRoot,
                           .subtype = "NVSwitch",
                           .pci = topology::PciAttributes{.bus = "0000:50:00.0"}});
  topology::testing::pci_at(machine, "0000:23:00.0").class_code = 0x030000;
  topology::testing::pci_at(machine, "0000:23:00.0").vendor = 0;
  put("kinds.json", topology::to_json(machine));
  EXPECT_THAT(rttopo({"show", "-i", path("kinds.json").c_str()}).out,
              AllOf(HasSubstr("2 NICs, 3 PCI devices of unknown kind (the description gives no class), 1 display of "
                              "unknown vendor, perhaps GPUs without a driver, 128 GB")));
  EXPECT_THAT(rttopo({"show", "-i", made_.c_str()}).out, Not(HasSubstr("unknown")));
}

TEST_F(Rttopo, ShowHasStorageWithoutDisksAndBothKindsOfCaches) {
  topology::Machine machine = topology::testing::two_sockets();
  machine.parts.push_back({.kind = topology::PartKind::host_bridge, .parent = topology::kRoot});
  machine.parts.back().pci.emplace();
  const auto bridge = static_cast<topology::PartIndex>(machine.parts.size() - 1);
  for (const std::uint32_t class_code : {0x010601u, 0x088000u}) {
    machine.parts.push_back({.kind = topology::PartKind::pci_function, .parent = bridge});
    machine.parts.back().pci = topology::PciAttributes{
        .bus = text("0000:0", class_code >> 16, ":00.0"), .class_code = class_code, .vendor = 0x8086};
  }
  put("storage.json", topology::to_json(machine));
  const Said said = rttopo({"show", "-i", path("storage.json").c_str()});
  EXPECT_THAT(said.out, AllOf(HasSubstr("SATA controller  0000:01:00.0"), Not(HasSubstr("0000:08:00.0"))));
  put("caches.xml",
      "<topology version=\"2.0\"><object type=\"Machine\"><object type=\"L1Cache\" cache_size=\"32768\" depth=\"1\" "
      "cache_type=\"1\"><object type=\"L1iCache\" cache_size=\"65536\" depth=\"1\" cache_type=\"2\"><object "
      "type=\"Core\" os_index=\"0\"><object type=\"PU\" os_index=\"0\"/></object></object></object></object>"
      "</topology>");
  EXPECT_THAT(rttopo({"show", "-i", path("caches.xml").c_str()}).out, HasSubstr("L1i 64 KiB, L1d 32 KiB"));
}

TEST_F(Rttopo, ShowAndMatrixHaveWhatWasMeasuredAndMarkWhatIsSlow) {
  topology::Measurements figures;
  figures.date = "2026-01-31T09:05:00Z";
  figures.host = "made";
  const auto copies = [](std::uint32_t from, std::uint32_t to, double rate) {
    return topology::CopyFigure{from, to, 4, std::uint64_t{1} << 28, {rate, rate, rate}};
  };
  figures.copies = {copies(0, 0, 4e10), copies(1, 1, 4.1e10), copies(2, 2, 1.5e10), copies(0, 1, 1.9e10)};
  figures.compute = {{"f32", 64, 1024, 1, 1, {1.5e11, 1.4e11, 1.6e11}}};
  put("figures.json", topology::to_json(figures));
  const std::string file = path("figures.json");
  const Said matrix = rttopo({"matrix", "-i", made_.c_str(), "--figures", file.c_str()});
  EXPECT_EQ(matrix.code, 0);
  EXPECT_THAT(matrix.out, AllOf(HasSubstr(" m40"), HasSubstr(" m19"), HasSubstr("Measured on made, 2026-01-31")));
  EXPECT_THAT(matrix.out, HasSubstr("15  (15 to 15)  !"));
  EXPECT_THAT(rttopo({"show", "-i", made_.c_str(), "--figures", file.c_str()}).out, HasSubstr("150  (140 to 160)"));
  const json both = json::parse(rttopo({"matrix", "-i", made_.c_str(), "--figures", file.c_str(), "--json"}).out);
  EXPECT_EQ(both["measurements"]["copies"][0]["bytes_per_second"]["median"], 4e10);
  EXPECT_EQ(both["tables"].back()["cells"][0][1]["measured_bytes_per_second"], 1.9e10);
  const json shown = json::parse(rttopo({"show", "-i", made_.c_str(), "--figures", file.c_str(), "--json"}).out);
  EXPECT_EQ(shown["counts"]["gpu_pci"], 4);
  EXPECT_EQ(shown["measurements"]["host"], "made");
  EXPECT_THAT(rttopo({"matrix", "-i", made_.c_str()}).out, Not(HasSubstr("Measured")));
}

TEST_F(Rttopo, ShowAndMatrixHaveWhatWasMeasuredOfGpus) {
  topology::Measurements figures;
  figures.date = "2026-01-31T09:05:00Z";
  figures.host = "made";
  topology::GpuFigure& gpu = figures.gpus.emplace_back();
  gpu.bus = "0000:12:00.0", gpu.model = "H100", gpu.products = "cuBLASLt 13.1.0";
  gpu.bytes_per_second = {3e12, 2.9e12, 3.1e12};
  gpu.compute = {{"bf16", 512, 4096, 1, 1, {7e14, 6e14, 8e14}}};
  figures.gpu_links = {{"0000:12:00.0", "0000:13:00.0", 1 << 26, {5e-6, 5e-6, 5e-6}, {4.4e10, 4.4e10, 4.4e10}}};
  put("gpus.json", topology::to_json(figures));
  const std::string file = path("gpus.json");
  const Said matrix = rttopo({"matrix", "-i", made_.c_str(), "--figures", file.c_str()});
  EXPECT_THAT(matrix.out, AllOf(HasSubstr(" m44"), HasSubstr("0000:12:00.0 to 0000:13:00.0")));
  const Said shown = rttopo({"show", "-i", made_.c_str(), "--figures", file.c_str()});
  EXPECT_THAT(shown.out, AllOf(HasSubstr("H100"), HasSubstr("512 rows"), HasSubstr("cuBLASLt 13.1.0")));
  const Said explained = rttopo({"explain", "gpu0", "gpu1", "-i", made_.c_str(), "--figures", file.c_str()});
  EXPECT_THAT(explained.out, HasSubstr("Measured by `rttopo bench`: 44 GB/s"));
  EXPECT_THAT(rttopo({"explain", "gpu1", "gpu0", "-i", made_.c_str(), "--figures", file.c_str()}).out,
              Not(HasSubstr("Measured")));
}

TEST_F(Rttopo, TakesTheMachinesOfARunAsThoseOfFiles) {
  const std::string two =
      R"({"schema": "troupe.cluster", "version": 1, "machines": [{"count": 1, "source": "rank 0", "machine": )" +
      topology::to_json(topology::testing::two_sockets()) + R"(}, {"count": 2, "source": "rank 1", "machine": )" +
      topology::to_json(topology::testing::two_sockets()) + "}]}";
  const std::vector<Node> nodes = nodes_from_json(two, "the run in run");
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[1].source, "rank 1");
  EXPECT_EQ(nodes[1].count, 2u);
  CommandLine line;
  line.verb = Verb::diff;
  line.run = "run";
  line.nodes = nodes;
  std::ostringstream out;
  EXPECT_EQ(run(line, out, false), 0);
  EXPECT_EQ(out.str(), "The 3 machines are alike.\n");
  for (const char* wrong :
       {"[]", "{", R"({"schema": 7})", R"({"schema": "troupe.cluster", "version": 1, "machines": []})",
        R"({"schema": "troupe.cluster", "version": 1, "machines": [{"count": -1}]})"})
    EXPECT_THROW(nodes_from_json(wrong, "x"), Error) << wrong;
  EXPECT_EQ(rttopo({"show", "--run", "run", "-i", made_.c_str()}).code, 2);
  EXPECT_EQ(rttopo({"diff"}).code, 2);
  EXPECT_EQ(rttopo({"diff", made_.c_str(), "--run", "run"}).code, 2);
}

TEST_F(Rttopo, FiguresThatAreNoneAreRefused) {
  const Said none = rttopo({"matrix", "-i", made_.c_str(), "--figures", path("none.json").c_str()});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("there is no such file; `rttopo bench --out"));
  const Said wrong = rttopo({"show", "-i", made_.c_str(), "--figures", made_.c_str()});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("these are no measurements"));
  EXPECT_EQ(rttopo({"bench", "--repeats", "0"}).code, 2);
}

TEST_F(Rttopo, DiffNamesTheOddMachineAndEndsWithOne) {
  const Said alike = rttopo({"diff", (made_ + ":2").c_str()});
  EXPECT_EQ(alike.code, 0);
  EXPECT_EQ(alike.out, "The 2 machines are alike.\n");
  const Said differs = rttopo({"diff", (made_ + ":2").c_str(), odd_.c_str()});
  EXPECT_EQ(differs.code, 1);
  EXPECT_THAT(differs.out,
              AllOf(HasSubstr("NVLink of GPU 0000:12:00.0\n  2 machines: 4 lanes to 0000:13:00.0\n  odd "
                              "(odd.json): 2 lanes to 0000:13:00.0\n"),
                    HasSubstr("\n\nodd (odd.json) differs from most in 1 of 1 things.\n"), Not(HasSubstr("besides"))));
  EXPECT_EQ(rttopo({"diff", "--nodes", (made_ + ":2," + odd_).c_str()}).out, differs.out);
  EXPECT_EQ(rttopo({"diff", "--nodes", made_.c_str(), odd_.c_str()}).code, 2);
  EXPECT_THAT(rttopo({"diff", made_.c_str(), odd_.c_str()}).out, Not(::testing::EndsWith("\n\n")));
  const json found = json::parse(rttopo({"diff", made_.c_str(), odd_.c_str(), "--json"}).out);
  EXPECT_EQ(found["differences"].size(), 1u);
}

TEST_F(Rttopo, DiffTellsOfEachMachineInHowManyThingsItDiffersAndWhatItDoesNotTell) {
  std::string nodes = made_ + ":3";
  for (const std::size_t differs : {1, 2}) {
    topology::Machine machine = topology::testing::two_sockets();
    machine.host = text("node", differs);
    for (topology::Part& part : machine.parts)
      if (part.kind == topology::PartKind::core && part.os_index == 1) part.os_index = 9;
    if (differs == 2) machine.links[0].lanes_down = 1;
    if (differs == 2) machine.gpus[0].architecture.clear();
    put(machine.host + ".json", topology::to_json(machine));
    nodes += ',' + path(machine.host + ".json");
  }
  const std::string out = rttopo({"diff", "--nodes", nodes.c_str()}).out;
  EXPECT_THAT(out, AllOf(HasSubstr("  3 machines: besides what all have: core 1\n"),
                         HasSubstr("node2 (node2.json): besides what all have: core 9\n"),
                         HasSubstr("node1 (node1.json) differs from most in 1 of 2 things.\n"),
                         HasSubstr("node2 (node2.json) differs from most in 2 of 2 things.\n"),
                         HasSubstr("node2 (node2.json) does not tell 1 thing that others tell (architecture of GPU "
                                   "0000:12:00.0); nothing follows from that.\n")));
}

TEST_F(Rttopo, ExplainListsTheWaysAndWhatLimitsThem) {
  const Said said = rttopo({"explain", "GPU 0", "gpu 1", "-i", made_.c_str()});
  EXPECT_EQ(said.code, 0);
  EXPECT_THAT(said.out, AllOf(HasSubstr("* NV4"), HasSubstr("  PIX"), HasSubstr("limited by the PCI link of")));
  EXPECT_THAT(rttopo({"explain", "gpu0", "gpu2", "-i", made_.c_str()}).out,
              HasSubstr("0000:0f:00.0 - NUMA 0 - NUMA 1 - 0000:1f:00.0"));
  EXPECT_THAT(rttopo({"explain", "numa0", "numa1", "-i", made_.c_str()}).out, HasSubstr("  NUMA 0 - NUMA 1;"));
  const Said unknown = rttopo({"explain", "GPU 0", "GPU 9", "-i", made_.c_str()});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("there is no part \"GPU 9\""));
  const Said above = rttopo({"explain", "gpu0", "10:00.0", "-i", made_.c_str()});
  EXPECT_THAT(above.out, AllOf(HasSubstr("GPU 0 to 0000:10:00.0"), Not(HasSubstr("0000:10:00.0 - 0000:10:00.0"))));
  EXPECT_EQ(rttopo({"explain", "12", "13", "-i", made_.c_str()}).code, 0);
  EXPECT_THAT(rttopo({"explain", "mlx5_0", "0000:12:00.0", "-i", made_.c_str()}).out, HasSubstr("* PIX"));
}

TEST_F(Rttopo, ExplainTellsOfEachKindOfMachineAndOfThoseWithoutThePart) {
  const std::string nodes = made_ + ":2," + odd_ + ',' + path("hwloc.xml");
  const Said said = rttopo({"explain", "gpu0", "gpu1", "--nodes", nodes.c_str()});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out, AllOf(HasSubstr("2 x " + made_ + "\nGPU 0 to GPU 1\n* NV4"),
                              HasSubstr("\n1 x " + odd_ + "\nGPU 0 to GPU 1\n* NV2"),
                              HasSubstr("hwloc.xml\nthere is no part \"gpu1\"")));
  const json machines =
      json::parse(rttopo({"explain", "gpu0", "gpu1", "--nodes", nodes.c_str(), "--json"}).out)["machines"];
  ASSERT_EQ(machines.size(), 3u);
  EXPECT_EQ(machines[1]["explanation"]["paths"][0]["class"], "NV2");
  EXPECT_THAT(std::string{machines[2]["error"]}, HasSubstr("no part"));
  const Said none = rttopo({"explain", "gpu0", "gpu9", "--nodes", nodes.c_str()});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, AllOf(HasSubstr(made_), HasSubstr("there is no part \"gpu9\"")));
}

TEST_F(Rttopo, DoctorEndsWithOneWhereSomethingIsWrong) {
  EXPECT_EQ(rttopo({"doctor", "-i", made_.c_str()}).code, 0);
  const Said said = rttopo({"doctor", "--nodes", (made_ + ":2," + odd_).c_str()});
  EXPECT_EQ(said.code, 1);
  EXPECT_THAT(said.out,
              AllOf(HasSubstr("error  link-lanes-down  odd (odd.json): GPU 0 (0000:12:00.0): 2 of 4"),
                    HasSubstr("cure: "), HasSubstr(" of 31 rules could be applied to 3 machines; something is wrong")));
  EXPECT_EQ(json::parse(rttopo({"doctor", "-i", odd_.c_str(), "--json"}).out)["findings"][0]["rule"],
            "link-lanes-down");
  EXPECT_THAT(rttopo({"doctor", "--rules"}).out, HasSubstr("numa-balancing"));
  const json rules = json::parse(rttopo({"doctor", "--rules", "--json"}).out)["rules"];
  EXPECT_EQ(rules.size(), 31u);
  EXPECT_EQ(rules[0]["rule"], "pci-below-capability");
}

TEST_F(Rttopo, ExportsWhatOtherToolsRead) {
  const auto exported = [&](const char* format) {
    return rttopo({"export", "-i", made_.c_str(), "--format", format}).out;
  };
  EXPECT_TRUE(is_xml(exported("hwloc")));
  EXPECT_THAT(exported("nccl"), HasSubstr("<system version=\"1\">"));
  EXPECT_THAT(exported("dot"), AllOf(HasSubstr("graph topology {"), HasSubstr("NVLink x4")));
  EXPECT_THAT(exported("dot"), HasSubstr("NUMA 0\\n64 GB"));
  EXPECT_THAT(rttopo({"export", "-i", path("nccl.xml").c_str(), "--format", "dot"}).out, Not(HasSubstr("0 GB\"")));
  EXPECT_TRUE(is_xml(exported("svg")));
  const Said cluster = rttopo({"export", "--nodes", (made_ + ":2").c_str(), "--format", "simgrid"});
  EXPECT_TRUE(is_xml(cluster.out));
  EXPECT_THAT(cluster.out, AllOf(HasSubstr("node1-gpu3"), HasSubstr("<zoneRoute")));
  EXPECT_EQ(rttopo({"export", "-i", made_.c_str(), "--format", "png"}).code, 2);
}

TEST_F(Rttopo, ImportsIntoJson) {
  const std::string out = path("imported.json");
  EXPECT_EQ(rttopo({"import", path("nccl.xml").c_str(), "-o", out.c_str()}).code, 0);
  EXPECT_THAT(rttopo({"show", "-i", out.c_str()}).out, HasSubstr("NVLink: 18 lanes to 1 GPU"));
  EXPECT_EQ(json::parse(rttopo({"import", path("nccl.xml").c_str(), "--json"}).out)["schema"], "troupe.topology");
  EXPECT_EQ(rttopo({"export", "-i", made_.c_str(), "--json"}).out, rttopo({"show", "-i", made_.c_str(), "--json"}).out);
  EXPECT_EQ(rttopo({"export", "-i", made_.c_str()}).code, 2);
}

TEST_F(Rttopo, ReadsTheClusterThatItPrints) {
  const std::string nodes = made_ + ":2," + odd_;
  put("cluster.json", rttopo({"show", "--nodes", nodes.c_str(), "--json"}).out);
  const std::string file = path("cluster.json");
  EXPECT_EQ(rttopo({"show", "-i", file.c_str(), "--json"}).out,
            rttopo({"show", "--nodes", nodes.c_str(), "--json"}).out);
  EXPECT_THAT(rttopo({"diff", file.c_str()}).out, HasSubstr("differs from most in 1 of 1 things"));
  EXPECT_EQ(json::parse(rttopo({"show", "--nodes", (file + ":2").c_str(), "--json"}).out)["counts"]["gpu_pci"], 24);
  EXPECT_EQ(rttopo({"show", "--nodes", (file + ":60000").c_str()}).code, 2);
  put("cluster.json", "{\"schema\": \"troupe.cluster\", \"machines\": " + std::string(100'000, '['));
  EXPECT_THAT(rttopo({"show", "-i", file.c_str()}).err, HasSubstr("nested more than 64 deep"));
}

TEST_F(Rttopo, MistakesGetAnExitCodeAndTheirCause) {
  EXPECT_EQ(rttopo({"show", "-i", path("none.xml").c_str()}).code, 2);
  EXPECT_THAT(rttopo({"shwo"}).err, HasSubstr("unknown command shwo; did you mean show?"));
  EXPECT_THAT(rttopo({"bogus"}).err, HasSubstr("unknown command bogus; did you mean one of show, matrix, bench, diff"));
  EXPECT_THAT(rttopo({"explain", "GPU 0"}).err, HasSubstr("explain needs two parts; a part is \"GPU 0\" or gpu0"));
  EXPECT_THAT(rttopo({"matrix", "-i", path("graph.xml").c_str()}).err, HasSubstr("graphs that NCCL found"));
  EXPECT_THAT(rttopo({"matrix", "--nodes", (made_ + ":2," + odd_).c_str(), "--figures", made_.c_str()}).err,
              HasSubstr("--figures are those of one machine"));
  EXPECT_THAT(rttopo({"show", "--nodes", (made_ + ":0").c_str()}).err, HasSubstr("must be from 1 to"));
  EXPECT_THAT(rttopo({"show", "--nodes", (made_ + ",," + odd_).c_str()}).err, HasSubstr("--nodes has an empty entry"));
  EXPECT_THAT(rttopo({"diff", path("graph.xml").c_str(), made_.c_str()}).err, HasSubstr("graphs that NCCL found"));
}

TEST_F(Rttopo, AnEmptyValueIsAMistakeAndNotThisHost) {
  for (const std::vector<const char*>& words : {std::vector<const char*>{"show", "-i", ""},
                                                {"show", "--nodes", ""},
                                                {"doctor", "--run", ""},
                                                {"diff", "--nodes", ""},
                                                {"import", made_.c_str(), "-o", ""},
                                                {"bench", "--hosts", ""},
                                                {"diff", "", made_.c_str()}}) {
    const Said said = rttopo(words);
    EXPECT_EQ(said.code, 2) << words[0] << ' ' << words[1];
    EXPECT_THAT(said.err, HasSubstr(" is empty")) << words[0] << ' ' << words[1];
  }
}

TEST_F(Rttopo, EveryCommandHasHelpWithExitCodes) {
  for (const char* verb :
       {"show", "matrix", "bench", "diff", "explain", "doctor", "import", "export", "env", "completion"}) {
    const Said said = rttopo({verb, "--help"});
    EXPECT_EQ(said.code, 0) << verb;
    EXPECT_THAT(said.out, HasSubstr("Exit codes: ")) << verb;
  }
  for (const char* shell : {"bash", "zsh", "fish"})
    EXPECT_THAT(rttopo({"completion", shell}).out, HasSubstr("explain"));
}

TEST_F(Rttopo, EnvTellsOfTheLaunchersPlace) {
  for (const auto& [name, value] : {std::pair{"RANK", "3"},
                                    {"WORLD_SIZE", "8"},
                                    {"LOCAL_RANK", "1"},
                                    {"MASTER_ADDR", "10.0.0.1"},
                                    {"MASTER_PORT", "29500"}})
    ::setenv(name, value, 1);
  const Said said = rttopo({"env"});
  const json place = json::parse(rttopo({"env", "--json"}).out)["place"];
  ::unsetenv("MASTER_PORT");
  const Said incomplete = rttopo({"env"});
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"}) ::unsetenv(name);
  EXPECT_THAT(said.out, HasSubstr("rank 3 of 8 (1 on its node); rank 0 is at 10.0.0.1:29500"));
  EXPECT_EQ(place["rank"], 3);
  EXPECT_EQ(incomplete.code, 3);
  EXPECT_THAT(incomplete.err, HasSubstr("MASTER_PORT is not"));
  EXPECT_THAT(rttopo({"env"}).out, HasSubstr("No launcher"));
}

TEST_F(Rttopo, EnvTellsWhichUcxIsUsed) {
  if (!ucx_available()) GTEST_SKIP() << "this build has no UCX";
  EXPECT_THAT(rttopo({"env"}).out, HasSubstr("UCX " + ucx_version() + " (/"));
  const json ucx = json::parse(rttopo({"env", "--json"}).out)["ucx"];
  EXPECT_EQ(ucx["version"], ucx_version());
  EXPECT_THAT(std::string{ucx["library"]}, HasSubstr("libucp.so"));
  EXPECT_TRUE(ucx["reads_gpu_memory"].is_boolean());
}

TEST_F(Rttopo, LooksAtThisHostWhereNoFileIsNamed) {
  const json here = json::parse(rttopo({"show", "--json"}).out);
  EXPECT_GE(here["counts"]["pus"], 1);
  EXPECT_EQ(here["schema"], "troupe.topology");
  EXPECT_THAT(rttopo({"show", "--all"}).out, HasSubstr("PU 0"));
}

}  // namespace
}  // namespace troupe::rttopo
