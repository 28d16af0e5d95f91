// The promise of the README's first command: the example learns.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

/// The folder that holds mnist/: TROUPE_DATA, or the one beside the repository; empty: neither is there.
std::string data_folder() {
  if (const char* set = std::getenv("TROUPE_DATA"); set != nullptr) return set;
  const std::filesystem::path beside = std::filesystem::path{TROUPE_SHARED_FOLDER} / "data";
  return std::filesystem::exists(beside / "mnist") ? beside.string() : "";
}

using Example = ClusterTest;

TEST_F(Example, LearnsMnistToMoreThan97PercentInTwoEpochs) {
  const std::string data = data_folder();
  if (data.empty()) GTEST_SKIP() << "no MNIST: TROUPE_DATA is not set and " << TROUPE_SHARED_FOLDER << " has none";
  ProgramStart start = folder_.rtrun({"--set", "train.epochs=2", "--set", "train.seed=1"});
  start.arguments[1] = EXAMPLE_CONFIGURATION;
  start.environment.emplace_back("TROUPE_DATA", data);
  Program rtrun{start};
  ASSERT_EQ(rtrun.wait(200s), 0) << rtrun.err();
  std::ifstream file{folder_.path() / "run/log"};
  const std::string log{std::istreambuf_iterator<char>{file}, {}};
  const std::string key = "\"validation/main/accuracy\":";
  const auto last = log.rfind(key);
  ASSERT_NE(last, std::string::npos) << log;
  EXPECT_NE(rtrun.out().find("Num process (COMM_WORLD): 2\n"), std::string::npos) << rtrun.out();
  EXPECT_GE(std::strtod(log.c_str() + last + key.size(), nullptr), 0.970) << rtrun.out();
}

}  // namespace
}  // namespace troupe::testing
