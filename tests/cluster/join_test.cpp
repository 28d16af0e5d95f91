// Ranks that a foreign launcher has started, one process each, on one node.

#include <signal.h>

#include <algorithm>
#include <cstdlib>

#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

using Join = ClusterTest;

ProgramStart with(ProgramStart start, const std::string& name, const std::string& value) {
  start.environment.emplace_back(name, value);
  return start;
}

ProgramStart with_arguments(ProgramStart start, const std::vector<std::string>& arguments) {
  start.arguments.insert(start.arguments.end(), arguments.begin(), arguments.end());
  return start;
}

TEST_F(Join, TrainsWithRanksFoundByTheirEnvironment) {
  const std::uint16_t port = free_port();
  Program second{folder_.rank(1, 2, "127.0.0.1", port)};
  Program first{folder_.rank(0, 2, "127.0.0.1", port)};
  EXPECT_EQ(first.wait(60s), 0) << first.err();
  EXPECT_EQ(second.wait(10s), 0) << second.err();
  EXPECT_NE(first.out().find("Num process (COMM_WORLD): 2\n"), std::string::npos) << first.out();
  EXPECT_EQ(second.out(), "");
}

const std::vector<std::string> kExample{"--set", "model.units=[1000,1000]", "--set", "data.batch=100"};

TEST_F(Join, TrainsTheExamplesNetworkInLessThan250MegabytesARank) {
  const std::uint16_t port = free_port();
  Program second{with_arguments(folder_.rank(1, 2, "127.0.0.1", port), kExample)};
  Program first{with_arguments(folder_.rank(0, 2, "127.0.0.1", port), kExample)};
  for (Program* rank : {&first, &second}) {
    EXPECT_EQ(rank->wait(60s), 0) << rank->err();
    EXPECT_LT(rank->peak_bytes(), 250'000'000u);
    EXPECT_GT(rank->peak_bytes(), 20'000'000u);  // parameters, gradients and state are in there
  }
}

/// The memory of rank 0 as `rtrun plan` prints it, in the last column of its row.
double planned_megabytes(const JobFolder& folder, const std::vector<std::string>& arguments) {
  ProgramStart start = folder.rtrun(arguments);
  start.arguments.insert(start.arguments.begin() + 1, "plan");
  Program plan{start};
  EXPECT_EQ(plan.wait(20s), 0) << plan.err();
  const auto header = plan.out().find(" memory\n");
  const auto row = plan.out().substr(plan.out().find('\n', header) + 1);
  const auto unit = row.find(" MB\n");
  const auto number = row.rfind(' ', unit - 1);
  if (header == std::string::npos || unit == std::string::npos) ADD_FAILURE() << plan.out();
  return std::strtod(row.c_str() + number, nullptr);
}

TEST_F(Join, TakesTheMemoryThatThePlanSaysOnTopOfTheLibraries) {
  // The same with narrower layers tells what the libraries take. Not with very narrow ones: from some width on,
  // oneDNN's products for AVX2 take 5 MB more, which then stay as they are.
  const std::vector<std::string> small{"--set", "model.units=[500,500]", "--set", "data.batch=100"};
  std::vector<double> taken;
  for (const auto& arguments : {small, kExample}) {
    const std::uint16_t port = free_port();
    Program second{with_arguments(folder_.rank(1, 2, "127.0.0.1", port), arguments)};
    Program first{with_arguments(folder_.rank(0, 2, "127.0.0.1", port), arguments)};
    EXPECT_EQ(first.wait(60s), 0) << first.err();
    EXPECT_EQ(second.wait(60s), 0) << second.err();
    taken.push_back(static_cast<double>(std::max(first.peak_bytes(), second.peak_bytes())) / 1e6);
  }
  const double planned = planned_megabytes(folder_, kExample);
  const double libraries = taken[0] - planned_megabytes(folder_, small);
  EXPECT_GT(libraries, 0);
  EXPECT_NEAR(taken[1] - libraries, planned, 0.1 * planned);
}

TEST_F(Join, StopsEveryRankWhenOneIsAskedTo) {
  const std::uint16_t port = free_port();
  Program first{with_arguments(folder_.rank(0, 2, "127.0.0.1", port), JobFolder::endless())};
  Program second{with_arguments(folder_.rank(1, 2, "127.0.0.1", port), JobFolder::endless())};
  ASSERT_TRUE(first.wait_until(trains, 30s)) << first.out() << first.err() << second.err();
  second.signal(SIGTERM);
  EXPECT_EQ(second.wait(20s), 143) << second.err();
  EXPECT_EQ(first.wait(20s), 0) << first.err();
}

TEST_F(Join, RefusesARankThatDoesNotKnowTheSecret) {
  const std::uint16_t port = free_port();
  const std::vector<std::string> patience{"--set", "faults.start_s=3"};
  const std::string right = folder_.write_secret("right", "open sesame");
  const std::string wrong = folder_.write_secret("wrong", "open barley");
  Program first{with(with_arguments(folder_.rank(0, 2, "127.0.0.1", port), patience), "TROUPE_SECRET_FILE", right)};
  Program second{with(with_arguments(folder_.rank(1, 2, "127.0.0.1", port), patience), "TROUPE_SECRET_FILE", wrong)};
  EXPECT_EQ(first.wait(20s), 4) << first.err();
  EXPECT_NE(first.err().find("rank 1"), std::string::npos) << first.err();
  EXPECT_NE(first.err().find("or raise faults.start_s"), std::string::npos) << first.err();
  EXPECT_GT(second.wait(20s), 0) << second.err();
  EXPECT_NE(second.err().find("secret"), std::string::npos) << second.err();
}

TEST_F(Join, RefusesRanksWithOtherSettings) {
  const std::uint16_t port = free_port();
  Program first{folder_.rank(0, 2, "127.0.0.1", port)};
  Program second{with_arguments(folder_.rank(1, 2, "127.0.0.1", port), {"--set", "data.batch=19"})};
  EXPECT_EQ(first.wait(30s), 2) << first.err();
  EXPECT_EQ(second.wait(30s), 2) << second.err();
}

}  // namespace
}  // namespace troupe::testing
