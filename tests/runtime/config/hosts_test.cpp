#include "runtime/config/hosts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<HostSlots> hosts_in(std::string_view text) { return parse_host_file(text, "hosts").hosts; }

/// The error about a wrong text.
std::string failure(std::string_view text) {
  try {
    parse_host_file(text, "hosts");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    return error.what();
  }
  return "it was read";
}

TEST(HostFile, TakesNamesSlotsAndComments) {
  EXPECT_EQ(hosts_in("# the cluster\n"
                     "\n"
                     "node1 slots=4 # comment\n"
                     "  node2.cluster\tslots=2 max-slots=8\r\n"
                     "node3:3\n"
                     "10.0.0.7#bare\n"
                     "node_5 max_slots=1"),
            (std::vector<HostSlots>{{"node1", 4}, {"node2.cluster", 2}, {"node3", 3}, {"10.0.0.7", 1}, {"node_5", 1}}));
}

TEST(HostFile, TakesNumbersInBrackets) {
  EXPECT_EQ(hosts_in("n[08-10,3] slots=2\nrack[1-2]-a:4\n"),
            (std::vector<HostSlots>{{"n08", 2}, {"n09", 2}, {"n10", 2}, {"n3", 2}, {"rack1-a", 4}, {"rack2-a", 4}}));
}

TEST(HostFile, CountsANameThatStandsThereAloneOnceForEachLine) {
  const HostList list = parse_host_file("a\nb\na\nA\n", "hosts");
  EXPECT_EQ(list.hosts, (std::vector<HostSlots>{{"a", 3}, {"b", 1}}));
  EXPECT_EQ(list.count_ranks(), 4u);
}

TEST(HostFile, TellsWhereWhatIsWrongAndWhatToWrite) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"a slots=0\n", "hosts:1:9: 0 slots leave the host without a rank; leave the host out, or write 1 to 1024"},
      {"a:0\n", "hosts:1:3: 0 slots leave the host without a rank"},
      {"b\na slots=1025\n", "hosts:2:9: \"1025\" are too many slots; a host has 1 to 1024"},
      {"a slots=99999999999999999999\n", "hosts:1:9: \"99999999999999999999\" are too many slots"},
      {"a slots=four\n", "hosts:1:9: \"four\" is not a number of slots; write 1 to 1024"},
      {"a slots=-1\n", "hosts:1:9: \"-1\" is not a number of slots"},
      {"a slots=\n", "hosts:1:9: \"\" is not a number of slots"},
      {"a slots = 4\n", "hosts:1:3: after a host's name only slots=N and max-slots=N (without spaces)"},
      {"a slots=4 cpus=2\n", "hosts:1:11: after a host's name only slots=N and max-slots=N"},
      {"a b c\n", "hosts:1:3: after a host's name only slots=N"},
      {"a slots=4 slots=4\n", "hosts:1:11: slots appears twice; leave one out"},
      {"a:4 slots=4\n", "hosts:1:1: has slots both after a : and after slots=; leave one out"},
      {"a slots=4 max-slots=2\n", "hosts:1:1: has 4 slots, more than its max-slots=2"},
      {"a slots=2\nb\na slots=2\n",
       "hosts:3:1: a is already named in line 1, and one of the two gives its slots; name it once"},
      {"a\na slots=2\n", "hosts:2:1: a is already named in line 1"},
      {"-oProxyCommand=x\n", "hosts:1:1: \"-oProxyCommand=x\" is not a host's name: a name begins with a letter"},
      {"-v\n", "hosts:1:1: \"-v\" is not a host's name: a name begins with a letter or a digit"},
      {"me@a\n", "hosts:1:3: \"me@a\" is not a host's name: the user's name on that host belongs in ~/.ssh/config"},
      {"a,b\n", "hosts:1:2: \"a,b\" is not a host's name: each host is an entry, or a line, of its own"},
      {"fe80::1\n", "hosts:1:5: \"fe80::1\" is not a host: write a number of slots after the :"},
      {"n\xc3\xb6\n", "is not a host's name: a name has letters, digits"},
      {":4\n", "hosts:1:1: a host's name is missing here"},
      {"$(reboot)\n", "hosts:1:1: \"$(reboot)\" is not a host's name"},
      {"n[1-\n", "hosts:1:2: the bracket is not closed; write node[01-04]"},
      {"n[1-2][3]\n", "is not a host's name: write the numbers in one pair of brackets"},
      {"n[a-b]\n", "hosts:1:3: \"a-b\" is not a range of numbers; write one as in node[01-04,07]"},
      {"n[1,5-2]\n", "hosts:1:5: \"5-2\" runs backwards"},
      {"n[1-4096,9000]\n", "hosts:1:1: stands for more than the 4096 hosts"},
      {"n[1-4096]\nlast\n", "hosts:2:1: is one host more than the 4096 that a job has at most"},
      {"n[1-65]:1024\n", "hosts:1:1: brings the ranks of all hosts above 65536"},
      {"", "hosts: names no host; write a line for each, such as \"node1 slots=4\""},
      {"# none\n\n", "hosts: names no host"},
  };
  for (const auto& [text, answer] : cases) EXPECT_THAT(failure(text), HasSubstr(answer)) << text;
  EXPECT_THAT(failure(std::string(300, 'a')), HasSubstr("hosts:1:1: a host's name of 300 bytes; it has at most 253"));
  EXPECT_THAT(failure(std::string{"a\0b", 3}), HasSubstr("hosts:1:2: \"a\\u0000b\" is not a host's name"));
}

TEST(HostFile, TellsTenMistakesAtOnce) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "a" + std::to_string(i) + ":0\n";
  const std::string said = failure(text);
  EXPECT_THAT(said, StartsWith("hosts:1:4: 0 slots"));
  EXPECT_THAT(said, HasSubstr("\nhosts:10:4: 0 slots"));
  EXPECT_THAT(said, EndsWith("\n(and more)"));
}

TEST(HostFile, TellsOfAHostThatIsOneTooManyEachTimeItStandsThere) {
  const std::string said = failure("n[1-4096]\nlast\nlast\n");
  EXPECT_THAT(said, HasSubstr("hosts:2:1: is one host more than the 4096"));
  EXPECT_THAT(said, HasSubstr("hosts:3:1: is one host more than the 4096"));
}

TEST(HostFile, MayHaveAMegabyteAndNoMore) {
  std::string text = "a slots=4\n#";
  text.resize(kMostHostFileBytes, 'x');
  EXPECT_EQ(hosts_in(text), (std::vector<HostSlots>{{"a", 4}}));
  EXPECT_EQ(failure(text + "x"),
            "hosts: has 1048577 bytes; a host file has at most 1048576, a line for each of at most 4096 hosts");
}

TEST(HostFile, IsReadFromARegularFileOnly) {
  std::string folder = ::testing::TempDir() + "/hosts-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::ofstream{folder + "/hosts"} << "a slots=2\n";
  EXPECT_EQ(read_host_file(folder + "/hosts").hosts, (std::vector<HostSlots>{{"a", 2}}));
  std::string said;
  try {
    read_host_file(folder, "app.toml:1:1: ");
  } catch (const Error& error) {
    said = error.what();
  }
  EXPECT_EQ(said, "app.toml:1:1: " + folder + ": is a folder; a host file has a line for each host");
  std::filesystem::remove_all(folder);
}

TEST(HostNames, OfThisMachineAreKnownWithoutANameServer) {
  char own[256] = {};
  ASSERT_EQ(::gethostname(own, sizeof own - 1), 0);
  for (const std::string name : {"localhost", "LocalHost", "127.0.0.1", "127.9.9.9", static_cast<const char*>(own)})
    EXPECT_TRUE(names_this_machine(name)) << name;
  for (const std::string name : {"no-such-host", "192.0.2.1", "127.1", ""})
    EXPECT_FALSE(names_this_machine(name)) << name;
  EXPECT_TRUE(names_loopback("localhost"));
  EXPECT_FALSE(names_loopback("10.0.0.1"));
}

TEST(HostList, IsDescribedByItsBeginning) {
  EXPECT_EQ(describe(parse_host_file("a:4\nb\n", "hosts")), "a:4, b:1");
  EXPECT_THAT(describe(parse_host_file("n[1-20]\n", "hosts")), EndsWith("n8:1, and 12 more"));
}

}  // namespace
}  // namespace troupe
