// Mutates host files for a second: for every input the answer is a list within its limits or an Error with a text.

#include <gtest/gtest.h>

#include <cstring>
#include <iostream>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "runtime/config/config.hpp"
#include "runtime/config/hosts.hpp"
#include "tests/fuzz/allocation_watch.hpp"
#include "tests/fuzz/damage.hpp"
#include "tests/fuzz/seed.hpp"

namespace troupe {
namespace {

/// A list of kMostHosts names of some bytes each, and some more for tables and messages.
constexpr std::size_t kLargestBlock = std::size_t{4} << 20;

const std::vector<std::string>& corpus() {
  static const std::vector<std::string> kCorpus{
      "node1 slots=4\nnode2 slots=4 # comment\n",
      "# Open MPI\nnode1.cluster slots=4 max-slots=8\nnode2.cluster slots=2 max_slots=2\n",
      "a:4\nb:2\r\nc\r\n",
      "n1\nn1\nn1\nn2\nn2\n",
      "node[01-04,07] slots=4\nrack[1-2]-a:3\n",
      "n[1-4096]\n",
      "n[1-64]:1024\n",
      "10.0.0.1 slots=2\n10.0.0.2 slots=2\n",
      "-oProxyCommand=reboot\nme@a\nfe80::1\n$(reboot)\n'a'\n",
      "a slots=0\nb slots=-1\nc slots=99999999999999999999\nd slots=\n",
      "n[\nn]\nn[]\nn[1-]\nn[-1]\nn[1-2][3-4]\nn[5-1]\nn[0-999999999]\nn[1,,2]\n",
      std::string("a\0b\n\x80\xff slots=1\n", 16),
  };
  return kCorpus;
}

std::string mutated(std::mt19937& dice) {
  static constexpr const char* kPieces[] = {
      "[", "]", "-", ",", ":", "#", " slots=", " max-slots=", "\n", "\r", "\t", "0", "4096", "[1-4096]", "node"};
  std::string text = corpus()[dice() % corpus().size()];
  if (dice() % 4 == 0) text += corpus()[dice() % corpus().size()];
  for (std::uint32_t times = dice() % 4; times > 0; --times)
    text.insert(dice() % (text.size() + 1), kPieces[dice() % std::size(kPieces)]);
  if (dice() % 3 == 0) {  // a piece many times over
    const std::string piece = text.substr(dice() % (text.size() + 1), 1 + dice() % 32);
    const std::size_t at = dice() % (text.size() + 1);
    for (std::uint32_t times = dice() % 3000; times > 0; --times) text.insert(at, piece);
  }
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  if (dice() % 4 != 0) testing::damage(bytes, 0, dice);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// What every list keeps to; a name in it is safe to be a program's argument.
void expect_within_limits(const HostList& list) {
  ASSERT_GE(list.hosts.size(), 1u);
  ASSERT_LE(list.hosts.size(), kMostHosts);
  ASSERT_LE(list.count_ranks(), kMostHostRanks);
  std::set<std::string_view> names;
  for (const HostSlots& host : list.hosts) {
    ASSERT_TRUE(names.insert(host.name).second) << host.name;
    ASSERT_TRUE(host.slots >= 1 && host.slots <= kMostSlots) << host.slots;
    ASSERT_LE(host.name.size(), kLongestHostName);
    ASSERT_TRUE(!host.name.empty() && host.name[0] != '-');
    ASSERT_EQ(host.name.find_first_of(" \t\r\n'\"$`\\;&|<>()[]:@#=/"), std::string::npos) << host.name;
  }
}

/// Whether it was a list.
bool read(const std::string& text) {
  HostList list;
  try {
    list = parse_host_file(text, "fuzz.hosts");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    EXPECT_GT(std::strlen(error.what()), 20u);
    EXPECT_LT(std::strlen(error.what()), 8192u);
    return false;
  }
  expect_within_limits(list);
  std::string printed;
  for (const HostSlots& host : list.hosts) printed += host.name + ":" + std::to_string(host.slots) + "\n";
  EXPECT_EQ(parse_host_file(printed, "printed"), list);
  return true;
}

TEST(HostsFuzz, AnyBytesAreAnsweredWithAListOrAnError) {
  std::mt19937 dice{testing::chosen_seed()};
  std::uint64_t runs = 0, lists = 0;
  for (const testing::FuzzTime time{std::chrono::milliseconds{800}}; time.goes_on(lists > 0); ++runs) {
    const std::string text = mutated(dice);
    SCOPED_TRACE(text.substr(0, 2000));
    testing::reset_largest_allocation();
    lists += read(text);
    ASSERT_LT(testing::largest_allocation(), kLargestBlock);
    if (::testing::Test::HasFailure()) return;
  }
  std::cout << runs << " host files, " << lists << " of them lists\n";
  EXPECT_GT(lists, 0u);
  EXPECT_LT(lists, runs);
}

TEST(HostsFuzz, AnyWordsInAListOfHostsAreAnsweredWithSettingsOrAnError) {
  std::mt19937 dice{testing::chosen_seed()};
  for (const testing::FuzzTime time{std::chrono::milliseconds{200}}; time.goes_on(true);) {
    const std::string text = mutated(dice).substr(0, 60);
    SCOPED_TRACE(text);
    try {
      const auto read = parse_configuration("", "fuzz.toml", {"cluster.nodes=['" + text + "', '" + text + "x']"});
      if (!read.settings.cluster.hosts.hosts.empty()) expect_within_limits(read.settings.cluster.hosts);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::invalid);
    }
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace troupe
