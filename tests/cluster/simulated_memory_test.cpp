// Jobs of several processes whose devices have memory of their own, which no host can access: the results have the same
// bits as with host memory.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/cluster/job_folder.hpp"
#include "tests/support/network.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::testing {
namespace {

using namespace std::chrono_literals;

/// Losses of all steps, and the parameters, as they stand in a probe's file.
using Bytes = std::vector<char>;

class SimulatedDeviceMemory : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (!ucx_available()) GTEST_SKIP() << "this build has no UCX";
  }

  Bytes train(const char* device, std::uint32_t ranks, const std::vector<std::string>& settings,
              const NamespaceCluster* nodes = nullptr, std::uint32_t ranks_per_node = 1) {
    const std::string file = folder_.path() / "tmp" / "probe";
    const std::string secret = folder_.write_secret("secret", "open sesame");
    const std::uint16_t port = nodes != nullptr ? 29600 : free_port();
    std::vector<std::unique_ptr<Program>> programs;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      ProgramStart start = folder_.rank(rank, ranks, nodes != nullptr ? nodes->address(0) : "127.0.0.1", port);
      start.environment.emplace_back("TROUPE_SECRET_FILE", secret);
      start.environment.emplace_back("PROBE_DEVICE", device);
      start.arguments = {PROBE_PROGRAM,
                         file,
                         "data.path=\"" + (folder_.path() / "data").string() + "\"",
                         "model.units=[16]",
                         "data.batch=10",
                         "train.steps=30",
                         "train.deterministic=true",
                         "optimizer.rate=0.01"};
      start.arguments.insert(start.arguments.end(), settings.begin(), settings.end());
      if (nodes != nullptr) start.run_by(nodes->enter(rank / ranks_per_node));
      programs.push_back(std::make_unique<Program>(start));
    }
    for (auto& program : programs) EXPECT_EQ(program->wait(90s), 0) << program->err();
    std::ifstream in{file, std::ios::binary};
    Bytes bytes{std::istreambuf_iterator<char>{in}, {}};
    std::filesystem::remove(file);
    return bytes;
  }

  void expect_same(std::uint32_t ranks, const std::vector<std::string>& settings,
                   const NamespaceCluster* nodes = nullptr, std::uint32_t ranks_per_node = 1) {
    std::string all;
    for (const std::string& setting : settings) all += setting + ' ';
    SCOPED_TRACE(all);
    const Bytes far = train("far", ranks, settings, nodes, ranks_per_node);
    ASSERT_FALSE(far.empty());
    EXPECT_EQ(far, train("near", ranks, settings, nodes, ranks_per_node));
  }

  /// A run that is resumed has the bits of one that was not interrupted.
  void expect_resumed(const char* device, std::uint32_t ranks, const std::vector<std::string>& settings,
                      const NamespaceCluster* nodes = nullptr, std::uint32_t ranks_per_node = 1) {
    SCOPED_TRACE(text(device, ", ", ranks, " ranks"));
    const std::filesystem::path saved = folder_.path() / "run" / "checkpoints";
    const std::string folder = "checkpoint.dir=\"" + saved.string() + "\"";
    const auto with = [&](std::vector<std::string> more) {
      more.emplace_back("evaluate.every_epochs=0");
      more.insert(more.end(), settings.begin(), settings.end());
      return more;
    };
    const Bytes at_once = train(device, ranks, with({"checkpoint.resume=never"}), nodes, ranks_per_node);
    std::filesystem::remove_all(saved);
    (void)train(device, ranks, with({"checkpoint.every_steps=10", folder, "train.steps=20"}), nodes, ranks_per_node);
    const Bytes again = train(device, ranks, with({"checkpoint.every_steps=10", "checkpoint.resume=auto", folder}),
                              nodes, ranks_per_node);
    // The first step of the second run is the job's 21st.
    constexpr std::size_t kSkipped = sizeof(std::uint64_t) + 20 * sizeof(double);
    ASSERT_GT(at_once.size(), kSkipped);
    ASSERT_GT(again.size(), sizeof(std::uint64_t));
    EXPECT_EQ(Bytes(at_once.begin() + kSkipped, at_once.end()),
              Bytes(again.begin() + sizeof(std::uint64_t), again.end()));
  }
};

TEST_F(SimulatedDeviceMemory, OfTwoProcessesIsReachedByBothDevices) {
  for (const auto& settings : std::vector<std::vector<std::string>>{
           {},
           {"update.policy=double_buffered"},
           {"update.policy=local_sgd", "update.every_steps=4"},
           {"optimizer.clip_norm=0.5", "update.digest_steps=5", "evaluate.every_epochs=1"}})
    expect_same(2, settings);
}

TEST_F(SimulatedDeviceMemory, OfOneRankAloneIsRefusedByAll) {
  const std::uint16_t port = free_port();
  const std::string secret = folder_.write_secret("secret", "open sesame");
  std::vector<std::unique_ptr<Program>> programs;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ProgramStart start = folder_.rank(rank, 2, "127.0.0.1", port);
    start.environment.emplace_back("TROUPE_SECRET_FILE", secret);
    start.environment.emplace_back("PROBE_DEVICE", rank == 0 ? "near" : "far");
    start.arguments = {PROBE_PROGRAM, (folder_.path() / "tmp" / "probe").string(),
                       "data.path=\"" + (folder_.path() / "data").string() + "\"", "model.units=[16]"};
    programs.push_back(std::make_unique<Program>(start));
  }
  for (auto& program : programs) {
    EXPECT_NE(program->wait(90s), 0);
    EXPECT_NE(program->err().find("rank 1 trains in its device's memory, rank 0 in the host's"), std::string::npos)
        << program->err();
  }
}

TEST_F(SimulatedDeviceMemory, IsLeftOutWhereShardsHostTheStripes) {
  EXPECT_FALSE(train("far", 2, {"update.policy=async", "evaluate.every_epochs=0"}).empty());
}

TEST_F(SimulatedDeviceMemory, OfTwoNodesIsExchangedOverATransport) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  for (const auto& settings : std::vector<std::vector<std::string>>{
           {}, {"update.compress=bf16"}, {"optimizer.clip_norm=0.5"}, {"update.policy=block_momentum"}})
    expect_same(2, settings, &nodes);
  expect_same(4, {}, &nodes, 2);
  expect_same(3, {"update.compress=bf16"}, &nodes, 2);
}

TEST_F(SimulatedDeviceMemory, IsSavedAndReadBack) { expect_resumed("far", 2, {}); }

TEST_F(SimulatedDeviceMemory, WithWhatCompressionTookAwayIsSavedAndReadBack) {
  if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
  const NamespaceCluster nodes{2};
  for (const char* const device : {"far", "near"}) {
    expect_resumed(device, 2, {"update.compress=bf16", "update.error_feedback=true"}, &nodes);
    expect_resumed(device, 4, {"update.compress=bf16", "update.error_feedback=true"}, &nodes, 2);
  }
}

}  // namespace
}  // namespace troupe::testing
