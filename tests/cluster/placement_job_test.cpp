// Where the threads of running ranks are according to the system, compared with `rtrun plan`.

#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "runtime/base/error.hpp"
#include "runtime/base/thread.hpp"
#include "runtime/topology/cpu_set.hpp"
#include "tests/cluster/job_folder.hpp"
#include "tests/support/control_group.hpp"

namespace troupe::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using topology::CpuSet;

/// The value of "NAME:\tvalue" in a file of /proc.
std::string status_of(const fs::path& file, const std::string& name) {
  std::ifstream in{file};
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name + ":")) return line.substr(line.find_first_not_of(" \t", name.size() + 1));
  return {};
}

struct Thread {
  std::string name;
  CpuSet cpus;
};
std::vector<Thread> threads_of(pid_t pid) {
  std::vector<Thread> threads;
  std::error_code gone;
  for (const auto& task : fs::directory_iterator{"/proc/" + std::to_string(pid) + "/task", gone}) {
    const std::string cpus = status_of(task.path() / "status", "Cpus_allowed_list");
    if (!cpus.empty()) threads.push_back({status_of(task.path() / "status", "Name"), CpuSet::from_list(cpus)});
  }
  return threads;
}

/// The rank that a launcher gave a process.
std::uint32_t rank_of(pid_t pid) {
  std::ifstream file{"/proc/" + std::to_string(pid) + "/environ"};
  for (std::string entry; std::getline(file, entry, '\0');)
    if (entry.starts_with("RANK=")) return static_cast<std::uint32_t>(std::stoul(entry.substr(5)));
  ADD_FAILURE() << "process " << pid << " has no rank";
  return 0;
}

class PlacementJob : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (usable_cpus().size() < 2) GTEST_SKIP() << "this process may use one CPU alone";
  }
  std::string plan(std::vector<std::string> settings) const {
    ProgramStart start = folder_.rtrun(std::move(settings));
    start.arguments.insert(start.arguments.begin() + 1, "plan");
    Program plan{start};
    EXPECT_EQ(plan.wait(20s), 0) << plan.err();
    return plan.out();
  }
  /// By rank, the column "cpus" of `rtrun plan`.
  std::map<std::uint32_t, CpuSet> planned(std::vector<std::string> settings = {}) const {
    std::map<std::uint32_t, CpuSet> cpus;
    std::istringstream lines{plan(std::move(settings))};
    std::size_t column = 0;  // none yet
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words{line};
      const std::vector<std::string> row{std::istream_iterator<std::string>{words}, {}};
      if (row.empty() || row.front().find_first_not_of("0123456789") != std::string::npos) column = 0;
      if (column != 0 && row.size() > column)
        cpus[static_cast<std::uint32_t>(std::stoul(row.front()))] = CpuSet::from_list(row[column]);
      const auto at = std::find(row.begin(), row.end(), "cpus");
      if (!row.empty() && row.front() == "rank" && at != row.end()) column = static_cast<std::size_t>(at - row.begin());
    }
    return cpus;
  }
  std::string control(const std::string& request) const {
    ProgramStart start = folder_.rtrun();
    start.arguments = {start.arguments[0], "control", "run", request};
    Program control{start};
    EXPECT_EQ(control.wait(30s), 0) << control.err();
    return control.out();
  }
};

TEST_F(PlacementJob, HasEveryThreadWhereThePlanHasItsRank) {
  const auto plan = planned();
  ASSERT_EQ(plan.size(), 2u);
  ASSERT_NE(plan.at(0), plan.at(1));
  Program rtrun{folder_.rtrun(JobFolder::endless())};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  std::set<std::string> names;
  for (const pid_t pid : children_of(rtrun.pid())) {
    const CpuSet& wanted = plan.at(rank_of(pid));
    for (const Thread& thread : threads_of(pid)) {
      EXPECT_TRUE(wanted.includes(thread.cpus))
          << thread.name << " of rank " << rank_of(pid) << " is on " << thread.cpus.list() << ", not " << wanted.list();
      names.insert(thread.name);
    }
  }
  for (const char* name : {"rtrun", "lane-control", "lane-bulk", "cpu-stream", "listener", "troupe-watch", "signals"})
    EXPECT_THAT(names, Contains(name));
  EXPECT_THAT(rtrun.err(), Not(HasSubstr("off-plan")));
  EXPECT_THAT(control("describe"), HasSubstr("threads where the plan has them: on processors " + plan.at(0).list()));
}

TEST_F(PlacementJob, OfOneProcessHasKernelThreadsThereToo) {
  const std::vector<std::string> settings{"--set", "cluster.nodes=\"local:1\"", "--set", "placement.cores=2"};
  const auto plan = planned(settings);
  ASSERT_EQ(plan.size(), 1u);
  auto arguments = JobFolder::endless();
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  arguments.insert(arguments.end(), {"--set", "data.batch=100"});
  Program rtrun{folder_.rtrun(arguments)};
  // Not until an epoch is over: on cores that are busy kernels wait long for each other.
  const auto computes = [&] {
    std::size_t of_device = 0;
    for (const Thread& thread : threads_of(rtrun.pid())) of_device += thread.name == "cpu-stream";
    return of_device >= 2;  // the stream's and one that it computes with
  };
  ASSERT_TRUE(becomes_true(computes, 60s)) << rtrun.out() << rtrun.err();
  for (const Thread& thread : threads_of(rtrun.pid()))
    EXPECT_TRUE(plan.at(0).includes(thread.cpus)) << thread.name << " is on " << thread.cpus.list();
}

TEST_F(PlacementJob, KeepsNoThreadAnywhereWhereTheSettingsSaySo) {
  auto arguments = JobFolder::endless();
  arguments.insert(arguments.end(), {"--set", "placement.affinity=none"});
  Program rtrun{folder_.rtrun(arguments)};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  CpuSet all;
  for (const std::uint32_t cpu : usable_cpus()) all.add(cpu);
  for (const pid_t pid : children_of(rtrun.pid()))
    for (const Thread& thread : threads_of(pid)) EXPECT_EQ(thread.cpus, all) << thread.name;
  EXPECT_THAT(control("describe"), HasSubstr("threads are not kept on processors"));
  EXPECT_THAT(plan({"--set", "placement.affinity=none"}), HasSubstr("keeps no thread on these cores"));
}

TEST_F(PlacementJob, StaysWithinATaskset) {
  const std::string last = std::to_string(usable_cpus().back());
  ProgramStart start = folder_.rtrun(JobFolder::endless());
  start.arguments.insert(start.arguments.end(), {"--set", "placement.cores=0"});
  start.run_by({"taskset", "-c", last});
  Program rtrun{start};
  ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
  for (const pid_t pid : children_of(rtrun.pid()))
    for (const Thread& thread : threads_of(pid)) EXPECT_EQ(thread.cpus.list(), last) << thread.name;
  EXPECT_THAT(rtrun.err(), Not(HasSubstr("off-plan")));
}

TEST_F(PlacementJob, GoesOnWhereAControlGroupForbidsThePlansProcessorsAndSaysWhichRanksAreElsewhere) {
  if (const std::string reason = CpusetGroup::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const std::vector<std::uint32_t> cpus = usable_cpus();
  // The plan knows the processors of both, and gives the first ones to rank 0.
  const CpusetGroup of_first(std::to_string(cpus[1]));
  const CpusetGroup of_second(std::to_string(cpus[0]));
  const std::string secret = folder_.write_secret("secret", "a secret of more than sixteen letters");
  const std::uint16_t port = free_port();
  std::vector<std::unique_ptr<Program>> ranks;
  for (const std::uint32_t rank : {1u, 0u}) {
    ProgramStart start = folder_.rank(rank, 2, "127.0.0.1", port);
    start.environment.emplace_back("TROUPE_SECRET_FILE", secret);
    start.run_by((rank == 0 ? of_first : of_second).enter());
    ranks.push_back(std::make_unique<Program>(start));
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->wait(60s), 0) << rank->err();
  for (const std::uint32_t rank : {0u, 1u})
    EXPECT_THAT(ranks[1]->err(), HasSubstr(text("rank ", rank, " (pid ", ranks[1 - rank]->pid(), "): ")));
  EXPECT_THAT(ranks[1]->err(), HasSubstr("(threads-off-plan)"));
  EXPECT_THAT(ranks[1]->err(), HasSubstr(text("may run on processors ", cpus[1], "; the plan has ", cpus[0])));
  std::ifstream page{folder_.path() / "run/report.html"};
  EXPECT_THAT((std::string{std::istreambuf_iterator<char>{page}, {}}), HasSubstr("threads-off-plan"));
}

}  // namespace
}  // namespace troupe::testing
