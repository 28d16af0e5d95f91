// What `rtrun plan` prints and draws for machines from files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
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

TEST_F(PlanCommand, PredictsAStepOnGpusWithAMarkOnEachGuess) {
  CommandLine line;
  line.what_if.gpus = 8;
  line.nodes = {{folder_ / "made.json", 1}};
  const std::string out = planned(line, {"placement.device=cuda"});
  EXPECT_THAT(out, AllOf(HasSubstr("step     predicted ~"), HasSubstr("compute ~"), HasSubstr("exchange ~")));
  EXPECT_THAT(out, AllOf(HasSubstr("figures  copies within a GPU's memory"), HasSubstr("modelled"),
                         HasSubstr("takes of its GPU's memory: products ")));
}

TEST_F(PlanCommand, PrintsTheSameNumbersAsJson) {
  CommandLine line;
  line.what_if.gpus = 8;
  line.nodes = {{folder_ / "made.json", 1}};
  line.json = true;
  const auto json = nlohmann::json::parse(planned(line, {"placement.device=cuda"}));
  line.json = false;
  const std::string out = planned(line, {"placement.device=cuda"});
  EXPECT_EQ(json["schema"], "troupe.plan");
  EXPECT_EQ(json["ranks"].size(), 8U);
  EXPECT_EQ(json["ranks"][7]["device"], "cuda");
  EXPECT_EQ(json["nodes"].size(), 2U);
  EXPECT_GT(json["gpu_memory"]["bytes"]["products"].get<double>(), 32e6);
  const auto& step = json["step"];
  EXPECT_TRUE(step["modelled"]["exchange"].get<bool>());
  for (const char* const part : {"compute", "exchange"}) {
    std::array<char, 40> number{};
    std::snprintf(number.data(), number.size(), "%s ~%.3g", part, step["ms"][part].get<double>());
    EXPECT_THAT(out, HasSubstr(number.data()));
  }
  for (const auto& figure : step["figures"]) EXPECT_THAT(out, HasSubstr(figure["what"].get<std::string>()));
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
