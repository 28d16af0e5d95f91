// The residuals of compression in checkpoints: restored bit by bit at the same number of ranks, and without loss at
// others.

#include <gtest/gtest.h>

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/session/resume.hpp"
#include "devices/reference/reference_device.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/random.hpp"
#include "runtime/planning/planner.hpp"
#include "tests/support/plan_inputs.hpp"

namespace troupe {
namespace {

struct Placed {
  std::uint32_t ranks, nodes;  // among which the ranks are dealt
};

Graph small_mlp() {
  return {"mlp",
          Shape{{9}},
          DType::f32,
          {{"a", Dense{40}}, {"r", Relu{}}, {"b", Dense{3}}, {"loss", SoftmaxCrossEntropy{}}}};
}

/// All ranks' memory of a job that packs what it sends, in one process.
class PlannedJob {
 public:
  PlannedJob(const Placed& placed, const Settings& settings) : placed_(placed) {
    for (std::uint32_t r = 0; r < placed.ranks; ++r) {
      JoinedJob& job =
          *jobs_.emplace_back(std::make_unique<JoinedJob>(JoinedJob{.place = {},
                                                                    .graph = small_mlp(),
                                                                    .layout = layout_of(settings, small_mlp()),
                                                                    .batch = {1, small_mlp().fields()}}));
      job.place.rank = r;
      job.place.world_size = placed.ranks;
      job.plan = make_plan(settings, job.graph, testing::plan_inputs(placed_.ranks, placed_.nodes));
      const std::uint64_t bytes = memory_needs(job.plan, job.graph, {r}).arena_bytes();
      arenas_.push_back(Arena::create(ArenaId{100 + r}, bytes));
      space_.map(arenas_.back());
      RankStore store(*arenas_.back());
      memory_.push_back(allocate_rank_memory(store, job.plan, {r}));
    }
    for (std::uint32_t r = 0; r < placed.ranks; ++r) {
      const Plan& plan = jobs_[r]->plan;
      const std::uint32_t leader = plan.shares_memory() ? plan.nodes[plan.ranks[r].node].leader : r;
      join_node_memory(memory_[r], plan, *arenas_[leader]);
    }
  }

  const JoinedJob& job(std::uint32_t rank) const { return *jobs_[rank]; }
  const RankMemory& memory(std::uint32_t rank) const { return memory_[rank]; }
  AddressSpace& space() { return space_; }
  std::uint32_t ranks() const { return placed_.ranks; }

  std::span<float> residual(std::uint32_t rank) {
    const Memory& memory = memory_[rank].groups[0].own.residual;
    return {space_.address_of<float>(memory), memory.size_bytes / sizeof(float)};
  }
  /// Of all ranks, element by element.
  std::vector<double> sum() {
    std::vector<double> all(residual(0).size());
    for (std::uint32_t r = 0; r < placed_.ranks; ++r)
      std::transform(all.begin(), all.end(), residual(r).begin(), all.begin(), std::plus<>());
    return all;
  }

  void save(const CheckpointStore& store, CheckpointId id) {
    Blocking waits = Blocking::on_thread("test");
    CheckpointManifest manifest;
    manifest.steps = id.steps;
    manifest.seed = jobs_[0]->plan.seed;
    manifest.model = jobs_[0]->plan.model;
    manifest.groups[0].rule = name_of(RuleKind::sgd);
    manifest.groups[0].policy = "sync";
    manifest.run = "test";
    for (const Parameter& parameter : jobs_[0]->graph.parameters()) manifest.shapes[parameter.name] = parameter.extents;
    for (std::uint32_t r = 0; r < placed_.ranks; ++r) {
      std::vector<PieceToWrite> pieces;
      for (const SnapshotPiece& piece : pieces_of(*jobs_[r], memory_[r]))
        pieces.push_back({piece.piece, piece.extents, {space_.address(piece.from), piece.from.size_bytes}});
      manifest.files.push_back(store.write(waits, id, r, pieces));
    }
    store.publish(waits, id, manifest);
  }

  void load(const CheckpointStore& store, CheckpointId id) {
    const auto host = make_reference_device(space_);
    HostCopies copies(*host, space_, ArenaId{999}, std::chrono::milliseconds{10000});
    for (std::uint32_t r = 0; r < placed_.ranks; ++r)
      Resumed({.folder = store.folder(), .id = id}, *jobs_[r]).load_state(*jobs_[r], copies, memory_[r]);
  }

 private:
  const Placed placed_;
  AddressSpace space_;
  std::vector<std::shared_ptr<Arena>> arenas_;
  std::vector<std::unique_ptr<JoinedJob>> jobs_;  // by rank
  std::vector<RankMemory> memory_;                // likewise
};

Settings packed_settings(PolicyKind policy = PolicyKind::sync) {
  Settings settings;
  settings.rule.kind = RuleKind::sgd;
  settings.compression = {Compression::bf16, /*error_feedback=*/true};
  settings.update.kind = policy;
  return settings;
}

class Residuals : public ::testing::Test {
 protected:
  Residuals() {
    folder_ = (std::filesystem::temp_directory_path() / "residuals.XXXXXX").string();
    store_.emplace(::mkdtemp(folder_.data()));
  }
  ~Residuals() override { std::filesystem::remove_all(folder_); }
  /// A job whose residuals are filled as far as they are of tensors, and saved.
  std::unique_ptr<PlannedJob> saved(const Placed& placed, CheckpointId id) {
    auto job = std::make_unique<PlannedJob>(placed, packed_settings());
    for (std::uint32_t r = 0; r < placed.ranks; ++r)
      for (const Stripe& range : job->memory(r).groups[0].sent)
        for (const Layout::Entry& entry : job->job(r).layout.entries())
          for (std::uint64_t i = std::max(range.first, entry.first);
               i < std::min(range.first + range.count, entry.first + entry.count); ++i)
            job->residual(r)[i] = static_cast<float>(random_normal(sub_key(5, r), i));
    job->save(*store_, id);
    return job;
  }

  std::string folder_;
  std::optional<CheckpointStore> store_;
};

TEST_F(Residuals, ComeBackToTheSameNumberOfRanksBitByBitAndToOthersInSum) {
  const std::vector<Placed> all{{2, 2}, {3, 3}, {4, 2}, {5, 2}, {6, 3}};
  std::uint32_t number = 0;
  for (const Placed& before : all) {
    const CheckpointId id{++number, 20};
    const auto from = saved(before, id);
    for (const Placed& after : all) {
      SCOPED_TRACE(text(before.ranks, " ranks on ", before.nodes, " nodes, then ", after.ranks, " on ", after.nodes));
      PlannedJob job(after, packed_settings());
      job.load(*store_, id);
      const std::vector<double> expected = from->sum(), found = job.sum();
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-5) << "element " << i;
      if (before.ranks != after.ranks || before.nodes != after.nodes) continue;
      for (std::uint32_t r = 0; r < after.ranks; ++r)
        ASSERT_TRUE(std::ranges::equal(job.residual(r), from->residual(r))) << "rank " << r;
    }
  }
}

TEST_F(Residuals, AreEmptyAfterAnotherPolicy) {
  const CheckpointId id{1, 20};
  (void)saved({2, 2}, id);
  Settings settings = packed_settings(PolicyKind::local_sgd);
  settings.update.every_steps = 4;
  PlannedJob job({2, 2}, settings);
  job.load(*store_, id);
  for (const double value : job.sum()) ASSERT_EQ(value, 0);
}

TEST_F(Residuals, AreNotKeptWhereNothingIsSent) {
  const PlannedJob job({2, 1}, packed_settings());
  EXPECT_EQ(job.memory(0).groups[0].own.residual.size_bytes, 0U);
  EXPECT_TRUE(job.memory(0).groups[0].sent.empty());
}

}  // namespace
}  // namespace troupe
