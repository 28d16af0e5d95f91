// What `rtrun plan` prints and draws for machines from files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <pugixml.hpp>
#include <sstream>

#include "runtime/base/error.hpp"
#include "runtime/topology/machine_json.hpp"
#include "tests/runtime/topology/machines.hpp"
#include "tools/rtrun/plan_command.hpp"

namespace troupe::rtrun {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PlanCommand : public ::testing::Test {
 protected:
  PlanCommand() {
    std::string pattern = ::testing::TempDir() + "/plan-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    std::ofstream{folder_ / "app.toml"} << "[data]\nsource = \"generated\"\n[model]\nunits = [64]\n";
    std::ofstream{folder_ / "made.json"} << topology::to_json(topology::testing::two_sockets());
    ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  ~PlanCommand() override { fs::remove_all(folder_); }

  std::string planned(CommandLine line, const std::vector<std::string>& overrides = {}) const {
    if (line.nodes.empty()) line.nodes = {{folder_ / "made.json", 2}};
    std::ostringstream out;
    print_plan(line, read_configuration(folder_ / "app.toml", overrides), out);
    return out.str();
  }

  fs::path folder_;
};

TEST_F(PlanCommand, PlansForMachinesFromAFile) {
  const std::string out = planned({});
  EXPECT_THAT(out, AllOf(HasSubstr("made-up (made.json:1)"), HasSubstr("mlx5_1:1"), HasSubstr("GPU 3"),
                         HasSubstr("route    hierarchical"), HasSubstr("of 128 GB")));
  EXPECT_THAT(out, AllOf(HasSubstr("ring     0 - "), HasSubstr("tree     0 <-"), HasSubstr("GPUs     of node 0")));
  EXPECT_THAT(planned({}, {"placement.mesh=1x2", "placement.policy=pack"}), Not(HasSubstr("made.json:1")));
}

TEST_F(PlanCommand, SaysThatHostsOfTheFileDoNotCount) {
  EXPECT_THAT(planned({}, {"cluster.nodes=local:2"}), HasSubstr("cluster.nodes (local:2) does not count here"));
}

TEST_F(PlanCommand, DrawsAPicture) {
  CommandLine line;
  line.picture = folder_ / "plan.svg";
  EXPECT_EQ(planned(line), line.picture + "\n");
  pugi::xml_document picture;
  ASSERT_TRUE(picture.load_file(line.picture.c_str()));
  std::ifstream in{line.picture};
  const std::string text{std::istreambuf_iterator<char>{in}, {}};
  EXPECT_THAT(text, AllOf(HasSubstr("rank 7"), HasSubstr("NUMA 1"), HasSubstr("near GPU 2"), HasSubstr("network")));
}

TEST_F(PlanCommand, APlanThatIsNotPossibleIsAnErrorOfTheConfiguration) {
  CommandLine line;
  line.what_if.gpus = 4;
  std::ofstream{folder_ / "plain.json"}
      << R"({"schema": "troupe.topology", "version": 1, "parts": [{"kind": "machine"}]})";
  line.nodes = {{folder_ / "plain.json", 1}};
  try {
    planned(line);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("plain.json"), HasSubstr("has no GPU")));
  }
}

}  // namespace
}  // namespace troupe::rtrun
