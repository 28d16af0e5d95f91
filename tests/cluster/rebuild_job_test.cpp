// `rtrun control RUN rebuild` many times, and its effect: the same run, and as much memory as before.

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

#include "runtime/checkpoint/store.hpp"
#include "tests/cluster/job_folder.hpp"
#include "tests/support/network.hpp"

namespace troupe::testing {
namespace {

using ::testing::ContainsRegex;

/// What a process has in use.
struct Holdings {
  double resident_kib = 0;
  std::size_t descriptors = 0;
  std::size_t mappings = 0;
  std::size_t threads = 0;
};

std::size_t count_entries(const std::filesystem::path& folder) {
  std::error_code gone;
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator{folder, gone}, {}));
}

Holdings holdings_of(pid_t pid) {
  const std::filesystem::path process = "/proc/" + std::to_string(pid);
  Holdings found{.descriptors = count_entries(process / "fd"), .threads = count_entries(process / "task")};
  std::ifstream maps{process / "maps"}, status{process / "status"};
  for (std::string line; std::getline(maps, line);) ++found.mappings;
  for (std::string word; status >> word;)
    if (word == "VmRSS:") status >> found.resident_kib;
  return found;
}

class RebuildJob : public ClusterTest {
 protected:
  /// Arguments of a run that saves what it ends with, into a folder of its own.
  static std::vector<std::string> saving(std::vector<std::string> arguments, const std::string& folder) {
    arguments.insert(arguments.end(),
                     {"--set", "train.deterministic=true", "--set", "checkpoint.every_steps=1000000000", "--set",
                      "report.dir=\"run/" + folder + '"'});
    return arguments;
  }
  std::vector<std::string> control_words(const std::string& folder, const std::string& request) const {
    return {RTRUN_PROGRAM, "control", "run/" + folder, request};
  }
  /// The command's answer; fails the test if it is refused.
  std::string ask(const std::string& folder, const std::string& request,
                  const std::vector<std::string>& run_by = {}) const {
    ProgramStart start = folder_.rtrun();
    start.arguments = control_words(folder, request);
    start.run_by(run_by);
    Program control{start};
    EXPECT_EQ(control.wait(60s), 0) << control.err();
    return control.out();
  }
  /// The state that the run in that folder has ended with: numbers by tensor and part.
  struct Saved {
    std::uint64_t steps = 0;
    std::uint64_t samples = 0;
    std::map<std::string, std::vector<float>> tensors;
  };
  Saved saved(const std::string& folder) const {
    const CheckpointStore store((folder_.path() / "run" / folder / "checkpoints").string());
    CheckpointReader reader(store, store.list().front());
    Saved all{reader.manifest().steps, reader.manifest().samples, {}};
    for (const auto& [tensor, extents] : reader.manifest().shapes) {
      std::uint64_t count = 1;
      for (const std::uint64_t extent : extents) count *= extent;
      const auto read = [&](const char* name, CheckpointPart part, std::uint32_t sender = 0) {
        std::vector<float>& numbers = all.tensors[text(tensor, '.', name, sender)];
        numbers.resize(count);
        reader.read({}, tensor, part, 0, numbers, sender);
      };
      read("parameters", CheckpointPart::parameters);
      read("state", CheckpointPart::state0);
      for (std::uint32_t r = 0; r < reader.manifest().count_residuals(tensor); ++r)
        read("residual", CheckpointPart::residual, r);
    }
    return all;
  }
};

TEST_F(RebuildJob, TwoHundredTimesInOneRunIsTheRunWithoutThemAndHardlyTakesMemory) {
  constexpr int kRebuilds = 200;
  const std::vector<std::string> momentum{"--set", "optimizer.rule=momentum", "--set", "optimizer.rate=0.01"};
  auto arguments = JobFolder::endless();
  arguments.insert(arguments.end(), momentum.begin(), momentum.end());
  // Messages that are due at an ended view's deadlines, the longest in 8 s, hold on to its actors until then.
  arguments.insert(arguments.end(), {"--set", "faults.start_s=4", "--set", "faults.exchange_s=4"});
  std::filesystem::create_directories(folder_.path() / "run");
  {
    Program rtrun{folder_.rtrun(saving(arguments, "rebuilt"))};
    ASSERT_TRUE(rtrun.wait_until(trains, 30s)) << rtrun.out() << rtrun.err();
    std::map<pid_t, Holdings> warm;
    const Deadline warms_up = Deadline::after(9s);
    int done = 0;
    for (int left = kRebuilds; left > 0; ++done) {
      ASSERT_THAT(ask("rebuilt", "rebuild"),
                  ContainsRegex(text("from step [0-9]+ on in a new view \\(number ", done + 2, "\\)")))
          << rtrun.err();
      if (!warm.empty()) --left;
      if (warm.empty() && warms_up.passed())
        for (const pid_t rank : children_of(rtrun.pid())) warm[rank] = holdings_of(rank);
    }
    EXPECT_EQ(warm.size(), 2u);
    for (const auto& [rank, before] : warm) {
      const Holdings after = holdings_of(rank);
      RecordProperty(text("resident_kib_", rank), text(before.resident_kib, " to ", after.resident_kib));
      // 1 % is the aim. The actors of an ended view, some 4.5 KiB, stay until their last deadline: in a process as
      // small as this one that is more when rebuilds come faster at the end than at first.
      EXPECT_LT(after.resident_kib, before.resident_kib * 1.03) << "after " << kRebuilds << " rebuilds";
      EXPECT_EQ(after.descriptors, before.descriptors);
      EXPECT_EQ(after.threads, before.threads);
      EXPECT_LE(after.mappings, before.mappings + 5) << "as the allocator likes";
    }
    ask("rebuilt", "stop");
    ASSERT_EQ(rtrun.wait(30s), 0) << rtrun.err();
    EXPECT_THAT(rtrun.err(), ContainsRegex(text("number ", done + 1,
                                                "\\), which took [0-9.]+ s to build \\(asked for by rtrun control")));
  }
  const Saved rebuilt = saved("rebuilt");
  arguments.insert(arguments.end(), {"--set", text("train.steps=", rebuilt.steps)});
  Program plain{folder_.rtrun(saving(arguments, "plain"))};
  ASSERT_EQ(plain.wait(120s), 0) << plain.err();
  const Saved without = saved("plain");
  EXPECT_EQ(without.steps, rebuilt.steps);
  EXPECT_EQ(without.samples, rebuilt.samples);
  EXPECT_TRUE(without.tensors == rebuilt.tensors) << "after " << rebuilt.steps << " steps";
  std::filesystem::remove_all(folder_.path() / "run");
}

/// Two ranks in network namespaces of their own.
class RebuildNodes : public RebuildJob {
 protected:
  void SetUp() override {
    RebuildJob::SetUp();
    if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
    cluster_ = std::make_unique<NamespaceCluster>(2);
    secret_ = folder_.write_secret("secret", "open sesame");
    std::filesystem::create_directories(folder_.path() / "run");
  }
  std::vector<std::unique_ptr<Program>> start(const std::vector<std::string>& arguments) const {
    std::vector<std::unique_ptr<Program>> ranks;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      ProgramStart start = folder_.rank(rank, 2, cluster_->address(0), 29500);
      start.environment.emplace_back("TROUPE_SECRET_FILE", secret_);
      start.arguments.insert(start.arguments.end(), arguments.begin(), arguments.end());
      start.run_by(cluster_->enter(rank));
      ranks.push_back(std::make_unique<Program>(start));
    }
    return ranks;
  }
  /// Trains with so many rebuilds, and then as far without any.
  void expect_same_run(std::vector<std::string> arguments, int rebuilds) const {
    {
      const auto ranks = start(saving(arguments, "rebuilt"));
      ASSERT_TRUE(ranks[0]->wait_until(trains, 30s)) << ranks[0]->out() << ranks[0]->err();
      Holdings warm;
      for (int i = 1; i <= rebuilds; ++i) {
        ask("rebuilt", "rebuild", cluster_->enter(0));
        if (i == rebuilds / 2) warm = holdings_of(ranks[0]->pid());
      }
      if (rebuilds >= 100) {
        const Holdings after = holdings_of(ranks[0]->pid());
        EXPECT_LT(after.resident_kib, warm.resident_kib * 1.03);  // up to 5 KiB a rebuild are left (ADR 0027)
        EXPECT_EQ(after.descriptors, warm.descriptors);
        EXPECT_EQ(after.threads, warm.threads);
        EXPECT_LE(after.mappings, warm.mappings + 5);
      }
      ask("rebuilt", "stop", cluster_->enter(0));
      for (const auto& rank : ranks) ASSERT_EQ(rank->wait(30s), 0) << rank->err();
    }
    const Saved rebuilt = saved("rebuilt");
    arguments.insert(arguments.end(), {"--set", text("train.steps=", rebuilt.steps)});
    for (const auto& rank : start(saving(arguments, "plain"))) ASSERT_EQ(rank->wait(120s), 0) << rank->err();
    const Saved plain = saved("plain");
    EXPECT_EQ(plain.steps, rebuilt.steps);
    EXPECT_TRUE(plain.tensors == rebuilt.tensors) << "after " << rebuilt.steps << " steps";
    std::filesystem::remove_all(folder_.path() / "run");
  }

  std::unique_ptr<NamespaceCluster> cluster_;
  std::string secret_;
};

TEST_F(RebuildNodes, GoOnOverTheNetworkAsTheRunWithoutIt) {
  auto arguments = JobFolder::endless();
  arguments.insert(arguments.end(),
                   {"--set", "optimizer.rule=adam", "--set", "faults.start_s=4", "--set", "faults.exchange_s=4"});
  expect_same_run(arguments, 200);
}

TEST_F(RebuildNodes, KeepWhatCompressionHasTakenAway) {
  auto arguments = JobFolder::endless();
  arguments.insert(arguments.end(), {"--set", "update.compress=\"bf16\"", "--set", "update.error_feedback=true",
                                     "--set", "optimizer.rule=momentum", "--set", "optimizer.rate=0.01"});
  expect_same_run(arguments, 10);
}

}  // namespace
}  // namespace troupe::testing
