// Descriptions of machines in files: reading, writing and refusing them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwloc.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "runtime/base/error.hpp"
#include "runtime/topology/exports.hpp"
#include "runtime/topology/hwloc_xml.hpp"
#include "runtime/topology/machine_json.hpp"
#include "runtime/topology/machine_schema.hpp"
#include "runtime/topology/nccl_xml.hpp"
#include "runtime/topology/reading.hpp"
#include "tests/runtime/topology/machines.hpp"

namespace troupe::topology {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kHwloc1;
using testing::kHwloc2;
using testing::kNccl;
using testing::two_sockets;

const std::string kFiles = TROUPE_SHARED_FOLDER "/topologies";

/// A line of MANIFEST.tsv, by the names of its columns.
using Row = std::map<std::string, std::string>;

std::vector<Row> manifest() {
  std::ifstream in{kFiles + "/MANIFEST.tsv"};
  const auto cells = [](const std::string& line) {
    std::vector<std::string> all;
    std::istringstream stream{line};
    for (std::string cell; std::getline(stream, cell, '\t');) all.push_back(cell);
    return all;
  };
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> names = cells(line);
  std::vector<Row> rows;
  while (std::getline(in, line)) {
    const std::vector<std::string> values = cells(line);
    Row& row = rows.emplace_back();
    for (std::size_t i = 0; i < std::min(names.size(), values.size()); ++i) row[names[i]] = values[i];
  }
  return rows;
}

#define REQUIRE_SHARED_FILES() \
  if (!std::filesystem::exists(kFiles)) GTEST_SKIP() << kFiles << " is not here: real machines are not tested"

std::string error_of(const std::string& text, Code code = Code::invalid) {
  try {
    machine_from(text, "file");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

void expect_count(const Row& row, const char* column, std::uint32_t counted) {
  const std::string& said = row.at(column);
  if (said == "-") return;
  EXPECT_EQ(std::stoul(said), counted) << row.at("file") << ' ' << column;
}

TEST(TopologyFiles, CountsOfRealMachinesAreThoseOfTheManifest) {
  REQUIRE_SHARED_FILES();
  std::size_t read = 0;
  for (const Row& row : manifest()) {
    const std::string& file = row.at("file");
    const std::string text = read_topology_file(kFiles + '/' + file);
    if (file.starts_with("reject/")) {
      EXPECT_THAT(error_of(text, Code::unsupported), HasSubstr("written by hwloc 3, this build reads up to 2"));
      continue;
    }
    if (row.at("format") == "nccl-graphs") {
      std::size_t gpus = 0;
      for (const NcclGraph& graph : graphs_from_nccl_xml(text, file))
        for (const auto& channel : graph.channels) gpus += channel.size();
      expect_count(row, "gpu_tags", static_cast<std::uint32_t>(gpus));
      continue;
    }
    const Counts counts = count(machine_from(text, file));
    expect_count(row, "packages", counts.packages);
    expect_count(row, "numa", counts.numa);
    expect_count(row, "cores", counts.cores);
    expect_count(row, "pus", counts.pus);
    expect_count(row, "gpu_pci", counts.gpu_pci);
    expect_count(row, "nic_pci", counts.nic_pci);
    expect_count(row, "nvlink_or_xgmi", counts.nvlink_or_xgmi);
    ++read;
  }
  EXPECT_GE(read, 40u);
}

TEST(TopologyFiles, ImportingWhatWasExportedGivesTheSameMachine) {
  REQUIRE_SHARED_FILES();
  for (const Row& row : manifest()) {
    const std::string& file = row.at("file");
    if (file.starts_with("reject/") || row.at("format") == "nccl-graphs") continue;
    const Machine machine = machine_from(read_topology_file(kFiles + '/' + file), file);
    EXPECT_TRUE(machine_from(to_json(machine), file) == machine) << file << " as JSON";
    EXPECT_TRUE(machine_from(to_hwloc_xml(machine), file) == machine) << file << " as hwloc XML";
    if (row.at("format") != "nccl-system") continue;
    EXPECT_TRUE(machine_from(to_nccl_xml(machine), file) == machine) << file << " as NCCL XML";
  }
}

/// What libhwloc makes of XML, as counts; nothing when it refuses it.
std::optional<Counts> hwlocs_counts(const std::string& xml) {
  hwloc_topology_t raw = nullptr;
  hwloc_topology_init(&raw);
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> owner{raw, hwloc_topology_destroy};
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (hwloc_topology_set_xmlbuffer(raw, xml.c_str(), static_cast<int>(xml.size()) + 1) != 0) return std::nullopt;
  if (hwloc_topology_load(raw) != 0) return std::nullopt;
  const auto number = [&](hwloc_obj_type_t type) {
    return static_cast<std::uint32_t>(hwloc_get_nbobjs_by_type(raw, type));
  };
  Counts counts{.packages = number(HWLOC_OBJ_PACKAGE), .numa = number(HWLOC_OBJ_NUMANODE)};
  counts.cores = number(HWLOC_OBJ_CORE);
  counts.pus = number(HWLOC_OBJ_PU);
  for (hwloc_obj_t pci = nullptr; (pci = hwloc_get_next_pcidev(raw, pci)) != nullptr;) {
    const auto& attributes = pci->attr->pcidev;
    counts.nic_pci += attributes.class_id >> 8 == 2;
    counts.gpu_pci +=
        attributes.class_id >> 8 == 3 && (attributes.vendor_id == 0x10de || attributes.vendor_id == 0x1002);
  }
  return counts;
}

TEST(TopologyFiles, HwlocLoadsWhatIsWrittenForItAndCountsTheSame) {
  std::vector<std::pair<std::string, std::string>> texts{{"own hwloc 2", kHwloc2}, {"own hwloc 1", kHwloc1}};
  if (std::filesystem::exists(kFiles))
    for (const Row& row : manifest())
      if (row.at("format") == "hwloc" && !row.at("file").starts_with("reject/"))
        texts.emplace_back(row.at("file"), read_topology_file(kFiles + '/' + row.at("file")));
  for (const auto& [name, text] : texts) {
    const Machine machine = machine_from(text, name);
    const auto seen = hwlocs_counts(to_hwloc_xml(machine));
    ASSERT_TRUE(seen) << name;
    Counts mine = count(machine);
    mine.numa = std::max(mine.numa, 1u);  // hwloc makes one where a file has none
    mine.nvlink_or_xgmi = 0;
    EXPECT_TRUE(*seen == mine) << name << ": " << seen->packages << ' ' << seen->numa << ' ' << seen->cores << ' '
                               << seen->pus << ' ' << seen->gpu_pci << ' ' << seen->nic_pci;
  }
}

TEST(TopologyFiles, HwlocLoadsAMachineThatCameFromNccl) {
  const auto seen = hwlocs_counts(to_hwloc_xml(machine_from(kNccl, "own")));
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->packages, 2u);
  EXPECT_EQ(seen->pus, 8u);
  EXPECT_EQ(seen->gpu_pci, 2u);
}

TEST(TopologyFiles, ADeviceThatSeveralLibrariesListIsOneDevice) {
  const Machine machine = machine_from(kHwloc2, "own");
  ASSERT_EQ(machine.gpus.size(), 1u);
  EXPECT_EQ(machine.gpus[0].model, "Made Up Accelerator");
  EXPECT_EQ(machine.gpus[0].memory_bytes, std::uint64_t{1} << 30);
  EXPECT_EQ(machine.gpus[0].serial, "123");
  EXPECT_EQ(machine.parts[machine.gpus[0].part].os_devices.size(), 3u);
  ASSERT_EQ(machine.nics.size(), 1u);
  EXPECT_EQ(machine.nics[0].interfaces.at(0).address, "02:00:00:00:00:01");
  EXPECT_EQ(machine.nics[0].ports.at(0).device, "mlx5_0");
  EXPECT_EQ(machine.nics[0].ports.at(0).active, true);
  EXPECT_EQ(machine.host, "made-up");
}

TEST(TopologyFiles, PortsOfTwoKindsAreNoVirtualFunctions) {
  const auto function = [](const char* number, const char* device, const std::string& content) {
    return text("<object type=\"PCIDev\" pci_busid=\"0000:37:00.", number, "\" pci_type=\"0200 [8086:", device,
                "] [8086:0000] 09\">", content, "</object>");
  };
  const std::string interface = "<object type=\"OSDev\" name=\"eth0\" osdev_type=\"2\"/>";
  const Machine machine = machine_from(
      text("<topology version=\"2.0\"><object type=\"Machine\"><object type=\"Bridge\" bridge_type=\"0-1\" "
           "bridge_pci=\"0000:[00-40]\">",
           function("0", "37ce", interface), function("2", "37d1", interface), function("4", "37cd", ""),
           function("5", "37cd", "<info name=\"PCIDevice\" value=\"X722 Virtual Function\"/>" + interface),
           "</object></object></topology>"),
      "own");
  std::vector<std::string> physical;
  for (const Nic& nic : machine.nics) physical.push_back(machine.parts[nic.part].pci->physical_function);
  EXPECT_THAT(physical, ::testing::ElementsAre("", "", "0000:37:00.0", "0000:37:00.0"));
}

TEST(TopologyFiles, NumaNodesOfHwloc1StandBesideTheProcessorsThatTheyContain) {
  const Machine machine = machine_from(kHwloc1, "own");
  const Index index{machine};
  const PartIndex gpu = machine.gpus.at(0).part;
  const PartIndex numa = index.numa_of(gpu);
  ASSERT_NE(numa, kNoPart);
  EXPECT_EQ(machine.parts[numa].bytes, 1000u);
  EXPECT_EQ(machine.parts[machine.parts[numa].parent].kind, PartKind::package);
  EXPECT_EQ(index.cpus(gpu).list(), "0");
  ASSERT_EQ(machine.distances.size(), 1u);
  EXPECT_THAT(machine.distances[0].values, ::testing::ElementsAre(10, 20, 80, 20, 10, 80, 80, 80, 10));
}

TEST(TopologyFiles, NcclFilesTellOfLinksPortsAndSwitches) {
  const Machine machine = machine_from(kNccl, "own");
  EXPECT_EQ(machine.gpus.at(1).architecture, "sm_90");
  EXPECT_EQ(machine.links.at(0).lanes, 18u);
  EXPECT_EQ(machine.nics.at(0).ports.at(0).bits_per_second, 400'000'000'000u);
  EXPECT_EQ(machine.nics.at(1).ports.at(0).device, "eth0");
  EXPECT_EQ(machine.parts[machine.parts[machine.gpus[0].part].parent].kind, PartKind::pci_switch);
  EXPECT_TRUE(machine_from(to_nccl_xml(machine), "again") == machine);
}

TEST(TopologyFiles, PortsOfASwitchBecomeTheSwitchForNccl) {
  const Machine seen = machine_from(to_nccl_xml(two_sockets()), "made");
  const Index index{seen};
  const PartIndex gpu = index.at_bus("0000:12:00.0");
  const PartIndex nic = index.at_bus("0000:14:00.0");
  ASSERT_TRUE(gpu != kNoPart && nic != kNoPart);
  EXPECT_EQ(seen.parts[gpu].parent, seen.parts[nic].parent);
  EXPECT_EQ(seen.parts[seen.parts[gpu].parent].pci->bus, "0000:10:00.0");
  EXPECT_EQ(seen.parts[gpu].pci->now, (PciLink{.gigatransfers = 16, .lanes = 16}));
}

TEST(TopologyFiles, NcclGetsGuidsInItsFormAndNothingThatIsNotKnown) {
  Machine machine = two_sockets();
  machine.nics[0].ports[0].guid = "506b:4b03:003c:eee8";
  machine.nics[1].ports[0].bits_per_second = 0;
  machine.parts[kRoot].infos.push_back({"Architecture", "aarch64"});
  const std::string xml = to_nccl_xml(machine);
  EXPECT_THAT(xml, AllOf(HasSubstr("name=\"mlx5_0\" speed=\"200000\" port=\"1\" guid=\"0x506b4b03003ceee8\""),
                         HasSubstr("name=\"mlx5_1\" port=\"1\""), HasSubstr("arch=\"arm64\"")));
}

TEST(TopologyFiles, WhatOnlyThisProjectKnowsSurvivesHwlocXmlToo) {
  Machine machine = two_sockets();
  machine.gpus[1].state = GpuState::lost;
  machine.limits.cpu_quota = 1.5;
  machine.system.governor = "powersave";
  machine.ranks.push_back({.rank = 3, .pid = 77, .numa_bytes = {{1, 4096}}, .gpu = "0000:12:00.0"});
  machine.nics[0].ports[0].rising["out_of_sequence"] = 12;
  machine.system.clock_ahead_ms = -1.5;
  machine.ranks[0].steps = RankSteps{.steps = 9, .last = 2, .compute_ms = 1.25, .slower_part = "compute"};
  EXPECT_TRUE(machine_from(to_hwloc_xml(machine), "again") == machine);
  EXPECT_TRUE(machine_from(to_json(machine), "again") == machine);
  const Machine switches = two_sockets(true);
  EXPECT_TRUE(machine_from(to_hwloc_xml(switches), "again") == switches);
}

TEST(TopologyFiles, JsonBeginsWithItsSchemaItsVersionAndCounts) {
  EXPECT_THAT(
      to_json(two_sockets(), -1),
      ::testing::StartsWith(R"({"schema":"troupe.topology","version":1,"counts":{"packages":2,"numa":2,"cores":8,)"
                            R"("pus":16,"gpu_pci":4,"nic_pci":2,"nvlink_or_xgmi":4},)"));
}

/// Where and how a value differs from a schema, by those words of JSON Schema that json_schema() uses; empty: nowhere.
std::string mismatch(const json& schema, const json& value, const std::string& path = "") {
  const auto is = [&](const char* word) { return schema.contains(word); };
  const std::map<std::string, bool> types{{"object", value.is_object()},          {"array", value.is_array()},
                                          {"string", value.is_string()},          {"number", value.is_number()},
                                          {"integer", value.is_number_integer()}, {"boolean", value.is_boolean()}};
  if (is("type") && !types.at(schema["type"])) return path + " is no " + std::string{schema["type"]};
  if (is("const") && schema["const"] != value) return path + " is not " + schema["const"].dump();
  if (is("enum") && std::ranges::find(schema["enum"], value) == schema["enum"].end()) return path + " has no such word";
  if (is("minimum") && value < schema["minimum"]) return path + " is too small";
  if (is("minItems") && value.size() < schema["minItems"]) return path + " is too short";
  if (is("maxItems") && value.size() > schema["maxItems"]) return path + " is too long";
  if (is("pattern") && !std::regex_match(std::string{value}, std::regex{std::string{schema["pattern"]}}))
    return path + " is not of the form";
  for (const auto& name : is("required") ? schema["required"] : json::array())
    if (!value.contains(name)) return path + " has no " + std::string{name};
  std::string found;
  for (std::size_t i = 0; value.is_array() && found.empty() && i < value.size(); ++i)
    found = mismatch(schema["items"], value[i], path + '/' + std::to_string(i));
  if (!value.is_object()) return found;
  for (const auto& [name, each] : value.items()) {
    if (!found.empty()) break;
    const bool listed = is("properties") && schema["properties"].contains(name);
    const json& rest = listed ? schema["properties"][name] : schema.value("additionalProperties", json::object());
    found = rest.is_boolean() ? path + " may not have " + name : mismatch(rest, each, path + '/' + name);
  }
  return found;
}

TEST(TopologyFiles, TheJsonOfEveryMachineFitsTheSchema) {
  const json schema = json::parse(json_schema());
  Machine full = two_sockets();
  full.limits.allowed = CpuSet::from_list("0-3,8");
  full.ranks.push_back(
      {.rank = 3, .cpus = CpuSet::from_list("0"), .numa_bytes = {{1, 4096}}, .placement = Placement{}});
  full.ranks[0].steps = RankSteps{.steps = 9, .compute_ms = 1.5, .slower_part = "load"};
  std::vector<std::pair<std::string, Machine>> machines{{"own", full}, {"nothing", {}}};
  if (std::filesystem::exists(kFiles))
    for (const Row& row : manifest())
      if (!row.at("file").starts_with("reject/") && row.at("format") != "nccl-graphs")
        machines.emplace_back(row.at("file"), machine_from(read_topology_file(kFiles + '/' + row.at("file")), "file"));
  for (const auto& [name, machine] : machines) EXPECT_EQ(mismatch(schema, json::parse(to_json(machine))), "") << name;
  json wrong = json::parse(to_json(full));
  wrong["parts"][1]["colour"] = "red";
  EXPECT_EQ(mismatch(schema, wrong), "/parts/1 may not have colour");
  wrong = json::parse(to_json(full));
  wrong["gpus"][0]["memory_bytes"] = "much";
  EXPECT_EQ(mismatch(schema, wrong), "/gpus/0/memory_bytes is no integer");
}

TEST(TopologyFiles, MistakesAreNamedWithTheirPlace) {
  EXPECT_THAT(error_of("<topology version=\"2.0\">\n <object type=\"Machine\"></topology>"), HasSubstr("file:2:"));
  EXPECT_THAT(error_of("hello"), HasSubstr("no topology; it must be JSON"));
  EXPECT_THAT(error_of("<graphs version=\"1\"/>"), HasSubstr("graphs that NCCL found"));
  EXPECT_THAT(error_of("{\"schema\": \"other\"}"), HasSubstr("is not a topology"));
  EXPECT_THAT(error_of(R"({"schema":"troupe.topology","version":2})"), HasSubstr("another version"));
  EXPECT_THAT(error_of(R"({"schema":"troupe.topology","version":1,"parts":[{"kind":"star"}]})"),
              HasSubstr("/parts/kind: unknown word \"star\""));
  EXPECT_THAT(error_of(R"({"schema":"troupe.topology","version":1,"gpus":[{"part":9}]})"), HasSubstr("names part 9"));
  EXPECT_THAT(error_of(R"(<topology version="3.0"><object type="Machine"/></topology>)", Code::unsupported),
              HasSubstr("written by hwloc 3, this build reads up to 2"));
  EXPECT_THAT(error_of(R"(<system version="1"><cpu numaid="x"/></system>)"), HasSubstr("<cpu numaid=\"x\">"));
}

TEST(TopologyFiles, WhatIsNoTextOrMoreThanOneDocumentIsNamed) {
  EXPECT_THAT(error_of(""), HasSubstr("this is empty"));
  EXPECT_THAT(error_of(" \n"), HasSubstr("this is empty"));
  EXPECT_THAT(error_of("\x1f\x8b\x08"), HasSubstr("packed by gzip; unpack it (gunzip)"));
  EXPECT_THAT(error_of(std::string{"\xff\xfe<\0s\0", 6}), HasSubstr("UTF-16; convert it"));
  EXPECT_THAT(error_of(std::string{testing::kNccl} + testing::kNccl), HasSubstr("there are several documents"));
  const std::string whole = testing::kHwloc2;
  EXPECT_THAT(error_of(whole.substr(0, whole.size() - 20)), HasSubstr("no XML, or cut short"));
}

TEST(TopologyFiles, XmlIsXmlWhateverLettersNamesHave) {
  Machine machine = two_sockets();
  machine.host = "a\x1b[31m\x01\xff\n&#27;<b>\"";
  machine.parts[kRoot].infos.push_back({"HostName", machine.host});
  machine.parts[machine.gpus[0].part].infos.push_back({"e\x7f\x02th", "\x02"});
  for (const std::string& xml : {to_hwloc_xml(machine), to_nccl_xml(machine), to_simgrid({&machine, 1})}) {
    for (const char letter : xml)
      EXPECT_TRUE(letter == '\n' || letter == '\t' || static_cast<unsigned char>(letter) >= ' ');
    EXPECT_EQ(xml.find('\xff'), std::string::npos);
    for (const char* reference : {"&#27;", "&#1;", "&#2;"})
      EXPECT_EQ(xml.find(reference), std::string::npos) << reference;
  }
  machine.host = machine.parts[kRoot].infos.back().value = "a\x1b[31m\x01 b";
  EXPECT_TRUE(machine_from(to_hwloc_xml(machine), "again") == machine);
}

TEST(TopologyFiles, EntitiesAreNotExpandedAndDepthAndSizeAreBounded) {
  std::string bomb = "<!DOCTYPE topology [<!ENTITY a \"aaaaaaaaaa\">";
  for (char c = 'b'; c <= 'k'; ++c) {
    bomb += std::string("<!ENTITY ") + c + " \"";
    for (int i = 0; i < 10; ++i) bomb += std::string("&") + static_cast<char>(c - 1) + ';';
    bomb += "\">";
  }
  bomb += "]><topology version=\"2.0\"><object type=\"Machine\"><info name=\"x\" value=\"&k;\"/></object></topology>";
  EXPECT_EQ(*find_info(machine_from(bomb, "bomb").parts[0].infos, "x"), "&k;");

  std::string deep = "<topology version=\"2.0\">";
  for (int i = 0; i < 100'000; ++i) deep += "<object type=\"Machine\">";
  for (int i = 0; i < 100'000; ++i) deep += "</object>";
  EXPECT_THAT(error_of(deep + "</topology>"), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(error_of("{\"a\":" + std::string(100'000, '[')), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(error_of("<topology>" + std::string(std::size_t{33} << 20, ' ')), HasSubstr("at most 33554432 are read"));
}

TEST(TopologyFiles, AFileLargerThanTheBoundIsNotReadToItsEnd) {
  const std::string path = ::testing::TempDir() + "large_topology";
  std::ofstream{path} << '{';
  std::filesystem::resize_file(path, std::uintmax_t{100} << 20);
  try {
    read_topology_file(path);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(path), HasSubstr("more than 32 MiB")));
  }
  std::filesystem::remove(path);
}

TEST(CpuSets, ListsAndMasksAreReadAndWritten) {
  EXPECT_EQ(CpuSet::from_mask("0x00000f00,,,0x1").list(), "0,104-107");
  EXPECT_EQ(CpuSet::from_mask("00000000,0000ffff,ff000000").list(), "24-47");
  EXPECT_EQ(CpuSet::from_list("0,104-107").mask(), "0x00000f00,0x00000000,0x00000000,0x00000001");
  EXPECT_TRUE(CpuSet::from_mask("0xf...f").empty());
  EXPECT_TRUE(CpuSet::from_list("0-7").includes(CpuSet::from_list("2,7")));
  EXPECT_FALSE(CpuSet::from_list("0-7").includes(CpuSet::from_list("8")));
  for (const char* bad : {"3-1", "a", "70000", "1,,x"}) EXPECT_THROW(CpuSet::from_list(bad), Error) << bad;
}

}  // namespace
}  // namespace troupe::topology
