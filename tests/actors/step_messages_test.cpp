// The number of messages in a step: all actors of a rank together, on a fake device.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "apps/session/training.hpp"
#include "devices/fake/fake_device.hpp"
#include "runtime/memory/arena.hpp"
#include "tests/support/actor_world.hpp"
#include "tests/support/batches.hpp"

namespace troupe {
namespace {

/// Any number of samples, all equal.
class Blank final : public Source {
 public:
  explicit Blank(std::uint64_t count) : count_(count) {}
  std::uint64_t count_samples() const noexcept override { return count_; }
  const std::vector<Field>& fields() const noexcept override { return fields_; }
  std::uint64_t size_bytes() const noexcept override { return 0; }
  void fill(const FillRequest& request, IoThreads&, std::shared_ptr<FillDone> done) const override {
    std::fill_n(request.slot, request.batch->size_bytes(), std::byte{0});
    done->filled({});
  }

 private:
  std::uint64_t count_;
  std::vector<Field> fields_{{std::string{kImage}, {{4}}, DType::f32}, {std::string{kLabel}, {}, DType::i32, 2}};
};

/// Sums up and exchanges nothing: a job of one rank.
class OneRank final : public Exchange {
 public:
  void begin(Stream&, const StepFacts&, Memory sums, Memory total) override {
    sums_ = sums;
    total_ = total;
  }
  bool has_round() const noexcept override { return true; }
  bool totals_are_common() const noexcept override { return true; }
  void contribute(Stream& stream, const Bucket&) override { stream.sum_up(total_, {&sums_, 1}); }
  void commit(Stream&) override {}
  bool is_consistent() const noexcept override { return true; }
  void show_common(Stream&) override {}
  void show_own(Stream&) override {}
  const PolicySettings& policy() const noexcept override { return in_force; }
  void switch_at(Step, const PolicySettings& given) override { in_force = given; }
  std::uint64_t updates() const noexcept override { return 0; }
  std::vector<StripeMemory> retire(const Status&) noexcept override { return {}; }

 private:
  PolicySettings in_force;
  Memory sums_, total_;
};

/// Messages that all actors of a job of one rank handle in `steps` steps, from the start to the end.
std::size_t count_messages(std::uint64_t steps) {
  const Schedule schedule{
      .train_samples = 1000, .test_samples = 10, .rows = 2, .ranks = 1, .steps = steps, .evaluate_every = 0};
  const BatchLayout batch = testing::image_batch(2, {{4}});
  const Graph graph{"tiny", Shape{{4}}, DType::f32, {{"l1", Dense{2}}, {"loss", SoftmaxCrossEntropy{}}}};
  const Layout layout{graph};
  const auto arena = Arena::create(arena_id({0}, 1), 1 << 20);
  AddressSpace space;
  space.map(arena);
  const auto take = [&](std::uint64_t bytes) { return arena->allocate(bytes); };
  const std::uint64_t bytes = layout.count_elements() * sizeof(float);
  FakeDevice device{space};
  const auto replica =
      device.compile(graph, layout, batch, make_buckets({}, graph, layout, 0), {take(bytes), {}, take(bytes)});
  const auto stream = device.fake_stream();
  OneRank exchange;
  StepExchange exchanges{
      {1}, space, take(StepExchange::ring_bytes(1)), take(StepExchange::total_bytes(1)), {&exchange}};
  LeasePool pool{space, *arena, 3, batch.size_bytes()};
  PointMessenger<StepReached, kStepsAhead + 1> step_messages{space};
  PointMessenger<EvaluationReached, kEvaluationsKept + 1> evaluation_messages{space};
  PointMessenger<SnapshotReached, 1> snapshot_messages{space};
  const Blank samples{1000};
  bool ended = false;

  test::ActorWorld actors;
  const DeviceParts parts{*stream,
                          *replica,
                          exchanges,
                          space,
                          step_messages,
                          evaluation_messages,
                          take(kEvaluationsKept * sizeof(StepSums)),
                          schedule,
                          snapshot_messages,
                          {}};
  IoThreads none("data", 0);
  TrainingActors training{actors.system(),
                          {.loader = LoaderParts{pool, samples, samples, batch, schedule, {0}, none, 7},
                           .device = parts,
                           .view = {1},
                           .self = {0},
                           .hosts = {"here"},
                           .abort_view = [](const Status&) {},
                           .ended = [&](const RunEnd& end) { ended = end.status.ok(); }}};
  training.start({}, {});
  std::size_t messages = actors.run();
  for (std::uint64_t round = 0; round <= steps && !ended; ++round) {
    device.run_until_idle();
    messages += actors.run();
  }
  EXPECT_TRUE(ended) << steps << " steps";
  Blocking blocking = Blocking::on_thread("test");
  training.end(blocking, Deadline::after(std::chrono::seconds(0)));  // they end when they run, below
  actors.run();
  return messages;
}

// A free slot, a batch, a reached point, and the resulting messages to membership and reporter.
TEST(StepMessages, AreFiveAtTheRankThatReportsHoweverManyStepsThereAre) {
  const std::size_t few = count_messages(20);
  EXPECT_EQ(count_messages(50) - few, 30 * 5);
  EXPECT_EQ(count_messages(220) - few, 200 * 5);
}

}  // namespace
}  // namespace troupe
