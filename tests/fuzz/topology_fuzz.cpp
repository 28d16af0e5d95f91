// Mutates descriptions of machines for a second: whatever is read, the answer is a machine that can be shown, compared
// and written again as the same value, or an Error that says what is wrong.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <random>
#include <sstream>

#include "apps/topology/picture.hpp"
#include "apps/topology/text_view.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "runtime/topology/doctor.hpp"
#include "runtime/topology/exports.hpp"
#include "runtime/topology/hwloc_xml.hpp"
#include "runtime/topology/machine_json.hpp"
#include "runtime/topology/reading.hpp"
#include "tests/fuzz/allocation_watch.hpp"
#include "tests/fuzz/damage.hpp"
#include "tests/fuzz/seed.hpp"
#include "tests/runtime/topology/machines.hpp"

namespace troupe::topology {
namespace {

constexpr std::size_t kLargestBlock = std::size_t{8} << 20;

std::string cluster_of(const std::string& machine) {
  return R"({"schema": "troupe.cluster", "version": 1, "machines": [{"count": 2, "source": "a", "machine": )" +
         machine + "}]}";
}

const std::vector<std::string>& corpus() {
  static const std::vector<std::string> kCorpus{testing::kHwloc2,
                                                testing::kHwloc1,
                                                testing::kNccl,
                                                to_json(testing::two_sockets(), -1),
                                                cluster_of(to_json(testing::two_sockets(), -1)),
                                                to_hwloc_xml(testing::two_sockets(true)),
                                                to_nccl_xml(testing::two_sockets())};
  return kCorpus;
}

std::string mutated(std::mt19937& dice) {
  static constexpr const char* kPieces[] = {"<object type=\"NUMANode\">",
                                            "</object>",
                                            "<pci busid=\"0000:12:00.0\">",
                                            "</pci>",
                                            "\"",
                                            "<",
                                            "{",
                                            "[",
                                            "-1",
                                            "99999999999",
                                            "0xffffffff,,,",
                                            "os_index=\"4294967295\"",
                                            "\"parent\":0,",
                                            "<!--",
                                            "]]>",
                                            "&#0;",
                                            "PU",
                                            "Bridge"};
  std::string text = corpus()[dice() % corpus().size()];
  for (std::uint32_t times = dice() % 4; times > 0; --times)
    text.insert(dice() % (text.size() + 1), kPieces[dice() % std::size(kPieces)]);
  if (dice() % 3 == 0) {  // a piece somewhere else
    const std::string piece = text.substr(dice() % text.size(), 1 + dice() % 400);
    text.insert(dice() % (text.size() + 1), piece);
  }
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  if (dice() % 4 != 0) troupe::testing::damage(bytes, 0, dice);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Whether it was a machine.
bool read(const std::string& text) {
  Machine machine;
  try {
    machine = format_of(text, "fuzz") == Format::json ? machines_from_json(text, "fuzz").front().machine
                                                      : machine_from(text, "fuzz");
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == Code::invalid || error.code() == Code::unsupported);
    EXPECT_GT(std::strlen(error.what()), 10u);
    EXPECT_LT(std::strlen(error.what()), 1000u);
    return false;
  }
  check(machine, "fuzz");
  const Index index{machine};
  const Entry shown = outline(index);
  std::ostringstream printed;
  print_tree(shown, false, printed);
  EXPECT_FALSE(printed.str().empty());
  print_tree(outline(index, true), true, printed);
  EXPECT_FALSE(picture(index, shown).empty());
  for (const PathTable& table : path_tables(index)) print_table(index, table, false, printed);
  examine({&machine, 1});
  to_graphviz(machine);
  to_simgrid({&machine, 1});
  to_nccl_xml(machine);
  // JSON keeps only text that is UTF-8.
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || (c >= ' ' && c < 0x7f); });
  const Machine from_json = machine_from(to_json(machine), "json");
  const Machine from_hwloc = machine_from(to_hwloc_xml(machine), "hwloc");
  EXPECT_TRUE(!plain || from_json == machine);
  EXPECT_TRUE(!plain || from_hwloc == machine);
  return true;
}

TEST(TopologyFuzz, AnyBytesAreAnsweredWithAMachineOrAnError) {
  std::mt19937 dice{troupe::testing::chosen_seed()};
  std::uint64_t runs = 0, machines = 0;
  for (const troupe::testing::FuzzTime time{std::chrono::milliseconds{1000}};
       time.goes_on(machines > 0 && machines < runs); ++runs) {
    const std::string text = mutated(dice);
    SCOPED_TRACE(text.substr(0, 4000));
    troupe::testing::reset_largest_allocation();
    machines += read(text);
    ASSERT_LT(troupe::testing::largest_allocation(), kLargestBlock);
    if (::testing::Test::HasFailure()) return;
  }
  std::cout << runs << " descriptions, " << machines << " of them machines\n";
  EXPECT_GT(machines, 0u);
  EXPECT_LT(machines, runs);
}

}  // namespace
}  // namespace troupe::topology
