#pragma once

#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cluster/job_folder.hpp"
#include "tests/support/network.hpp"

namespace troupe::testing {

inline constexpr const char* kOwn = "cluster.collectives=\"own\"";
inline constexpr const char* kNccl = "cluster.collectives=\"nccl\"";
inline constexpr const char* kNcclInNodes = "cluster.collectives=\"nccl_in_nodes\"";

/// Jobs of rtrun whose ranks compute on GPUs, over the stand-ins for the CUDA driver and for NCCL, which make a process
/// fail if they have something to report.
class CudaJob : public ClusterTest {
 protected:
  using Settings = std::vector<std::string>;

  void TearDown() override {
    std::filesystem::remove_all(folder_.path() / "run" / "checkpoints");
    ClusterTest::TearDown();
  }

  /// rtrun with a driver that shows `devices` GPUs; 0: without one.
  ProgramStart job(std::uint32_t devices, std::uint32_t ranks, Settings settings, std::vector<std::string> words = {}) {
    const bool is_mlp = std::ranges::none_of(settings, [](const std::string& s) { return s.starts_with("model."); });
    if (is_mlp) settings.insert(settings.begin(), "model.units=[16]");
    settings.insert(settings.begin(), {"cluster.nodes=\"local:" + std::to_string(ranks) + '"',
                                       "train.deterministic=true", "data.batch=" + std::to_string(120 / ranks),
                                       "optimizer.rate=0.01", "placement.cores=0", "faults.dead_ms=20000"});
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    ProgramStart start = folder_.rtrun(words);
    if (devices == 0) return start;
    start.environment.insert(start.environment.end(), {{"LD_LIBRARY_PATH", CUDA_HOST_FOLDER},
                                                       {"TROUPE_CUDA_HOST_SEED", "3"},
                                                       {"TROUPE_CUDA_HOST_CLOSED", "1"},
                                                       {"TROUPE_CUDA_HOST_DEVICES", std::to_string(devices)}});
    return start;
  }
  static Settings on(const char* device, Settings settings) {
    settings.push_back("placement.device=\"" + std::string{device} + '"');
    return settings;
  }

  /// The losses of all lines of a run's log, in training and of its test set.
  std::vector<double> losses() const {
    std::ifstream file{folder_.path() / "run" / "log"};
    std::vector<double> all;
    for (const auto& line : nlohmann::json::parse(file, nullptr, false)) {
      all.push_back(line.value("main/loss", std::nan("")));
      if (line.contains("validation/main/loss")) all.push_back(line["validation/main/loss"]);
    }
    return all;
  }
  std::vector<double> train(const ProgramStart& start) {
    Program rtrun{start};
    EXPECT_EQ(rtrun.wait(90s), 0) << rtrun.err();
    EXPECT_THAT(rtrun.err(), ::testing::Not(::testing::HasSubstr("cuda stand-in"))) << rtrun.out();
    return losses();
  }
  /// Sums have another order on a GPU, so the last bits differ.
  static void expect_near(const std::vector<double>& got, const std::vector<double>& wanted) {
    ASSERT_FALSE(wanted.empty());
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-3 * wanted[i]) << "line " << i;
  }
  void expect_as_on_cpus(std::uint32_t devices, std::uint32_t ranks, const Settings& settings) {
    std::string all;
    for (const std::string& setting : settings) all += ' ' + setting;
    SCOPED_TRACE(std::to_string(ranks) + " ranks on " + std::to_string(devices) + " GPUs" + all);
    const std::vector<double> wanted = train(job(0, ranks, on("cpu", settings)));
    expect_near(train(job(devices, ranks, on("cuda", settings))), wanted);
  }

  /// Starts ranks as another launcher would, over `nodes` in order.
  std::vector<std::unique_ptr<Program>> start_ranks(const std::vector<ProgramStart>& starts,
                                                    const NamespaceCluster* nodes = nullptr) {
    const auto count = static_cast<std::uint32_t>(starts.size());
    const std::uint16_t port = nodes != nullptr ? 29600 : free_port();
    const std::string secret = folder_.write_secret("secret", "a secret of more than sixteen letters");
    std::vector<std::unique_ptr<Program>> ranks;
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      ProgramStart start = starts[rank];
      const ProgramStart place = folder_.rank(rank, count, nodes != nullptr ? nodes->address(0) : "127.0.0.1", port);
      start.environment.insert(start.environment.end(), place.environment.begin(), place.environment.end());
      start.environment.emplace_back("TROUPE_SECRET_FILE", secret);
      if (nodes != nullptr) start.run_by(nodes->enter(rank * 2 / count));
      ranks.push_back(std::make_unique<Program>(start));
    }
    return ranks;
  }
  /// What such ranks print, which end well.
  std::vector<std::string> run_ranks(const std::vector<ProgramStart>& starts, const NamespaceCluster* nodes = nullptr) {
    std::vector<std::string> out;
    for (const auto& rank : start_ranks(starts, nodes)) {
      EXPECT_EQ(rank->wait(90s), 0) << rank->err();
      EXPECT_THAT(rank->err(), ::testing::Not(::testing::HasSubstr("cuda stand-in")));
      out.push_back(rank->out());
    }
    return out;
  }

  /// Ends a run that trains until somebody ends it.
  static void expect_end_by_ctrl_c(const ProgramStart& start) {
    Program rtrun{start};
    ASSERT_TRUE(rtrun.wait_until(trains, 60s)) << rtrun.out() << rtrun.err();
    rtrun.signal(SIGINT);
    EXPECT_EQ(rtrun.wait(20s), 130) << rtrun.err();
    EXPECT_THAT(rtrun.err(), ::testing::Not(::testing::HasSubstr("cuda stand-in")));
    EXPECT_THAT(rtrun.err(), ::testing::Not(::testing::HasSubstr("error")));
  }
  /// Makes two new views of such a run, and stops it.
  void expect_new_views(const ProgramStart& start) {
    Program rtrun{start};
    ASSERT_TRUE(rtrun.wait_until(trains, 60s)) << rtrun.out() << rtrun.err();
    for (const char* const request : {"rebuild", "rebuild", "stop"}) {
      ProgramStart ask = folder_.rtrun();
      ask.arguments = {RTRUN_PROGRAM, "control", "run", request};
      Program control{ask};
      EXPECT_EQ(control.wait(30s), 0) << control.err();
    }
    EXPECT_EQ(rtrun.wait(20s), 0) << rtrun.err();
    EXPECT_THAT(rtrun.err(), ::testing::HasSubstr("in a new view (number 3)"));
    EXPECT_THAT(rtrun.err(), ::testing::Not(::testing::HasSubstr("cuda stand-in")));
  }

  /// Kills each of the two ranks of such a run, which trains until somebody ends it.
  void expect_end_within_4_seconds_of_a_kill(const ProgramStart& start) {
    for (const std::size_t victim : {0U, 1U}) {
      Program rtrun{start};
      ASSERT_TRUE(rtrun.wait_until(trains, 60s)) << rtrun.out() << rtrun.err();
      const auto ranks = children_of(rtrun.pid());
      ASSERT_EQ(ranks.size(), 2U);
      ::kill(ranks[victim], SIGKILL);
      EXPECT_EQ(rtrun.wait(4s), 4) << rtrun.err();
      EXPECT_THAT(rtrun.err(), ::testing::HasSubstr("rank " + std::to_string(victim)));
      EXPECT_THAT(rtrun.err(), ::testing::HasSubstr("[rank " + std::to_string(1 - victim) + "] rtrun: error: "));
      EXPECT_THAT(rtrun.err(), ::testing::Not(::testing::HasSubstr("cuda stand-in")));
    }
  }

  void expect_refused(const ProgramStart& start, int exit_code, const std::string& why) {
    Program rtrun{start};
    EXPECT_EQ(rtrun.wait(30s), exit_code) << rtrun.err();
    EXPECT_THAT(rtrun.err(), ::testing::HasSubstr(why));
    EXPECT_EQ(rtrun.err().find('\n'), rtrun.err().size() - 1) << "more than one line: " << rtrun.err();
  }
};

}  // namespace troupe::testing
