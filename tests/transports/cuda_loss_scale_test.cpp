#include <limits>

#include "devices/cuda/cuda_device.hpp"
#include "runtime/model/f16.hpp"
#include "tests/contracts/exchange_contract.hpp"
#include "tests/support/gpu.hpp"
#include "tests/transports/communicator_worlds.hpp"

// The loss scale of ranks on one GPU that exchange in each step: one verdict for all.
namespace troupe::contracts {
namespace {

constexpr LossScaling kScaling{.start = 1024, .growth_steps = 3};

GroupSpec two_ranks() {
  GroupSpec spec = random_group(2, 77);
  spec.rule = {.kind = RuleKind::adam, .rate = 0.01, .weight_decay = 0.01, .scales_loss = true};
  spec.half = true;
  return spec;
}

/// Two ranks, each with an exchange that moves its loss scale. Steps may have the numbers of others.
class ScaledGroup {
 public:
  explicit ScaledGroup(const LossScaling& scaling)
      : group_(spec_, {"Gpu", [](const GroupSpec& spec) { return std::make_unique<ArenaWorld>(spec, devices()); }}) {
    const LossScale first = first_scale(scaling);
    for (std::uint32_t r = 0; r < spec_.ranks; ++r) {
      RankView& view = group_.world->rank(r);
      scales_.push_back(view.take(sizeof(LossScaleState)));
      WorkingGroup::write(view, scales_.back(), std::vector{LossScaleState{first, first}});
      StripeMemory mine = view.mine;
      mine.copy_type = DType::f16;
      mine.loss_scale = scales_.back();
      exchanges_.push_back(
          make_policy_exchange({.communicator = view.communicator,
                                .rule = spec_.rule,
                                .policy = std::make_unique<PolicySequence>(std::vector<PolicyPhase>{{}}, spec_.ranks),
                                .buckets = spec_.buckets,
                                .memory = {.gradients = view.gradients, .mine = {mine}, .loss_scale = scales_.back()},
                                .scaling = scaling}));
    }
  }

  /// A step with the numbers of step `source`; `overflows`: at rank 1.
  void enqueue(std::uint64_t step, std::uint64_t source, bool overflows = false) {
    for (std::uint32_t r = 0; r < spec_.ranks; ++r) {
      RankView& view = group_.world->rank(r);
      std::vector<float> gradients = SerialRun::gradients(spec_, r, source);
      if (overflows && r == 1) gradients[gradients.size() / 2] = std::numeric_limits<float>::infinity();
      const Memory found = WorkingGroup::put(view, gradients);
      const BucketWork work = group_.work_of(r, step, spec_.buckets[0]);
      exchanges_[r]->begin(*view.stream, {.step = Step{step}}, work.sums, work.total);
      view.stream->copy(work.sums, WorkingGroup::put(view, std::vector{SerialRun::sums(spec_, r, source)}));
      for (const Bucket& bucket : spec_.buckets) {
        exchanges_[r]->acquire(*view.stream, bucket);
        const std::uint64_t first = bucket.first * sizeof(float), bytes = bucket.count * sizeof(float);
        view.stream->copy(slice(view.gradients, first, bytes), slice(found, first, bytes));
        exchanges_[r]->contribute(*view.stream, bucket);
      }
      exchanges_[r]->commit(*view.stream);
    }
  }
  void finish() {
    for (std::uint32_t r = 0; r < spec_.ranks; ++r) exchanges_[r]->join(*group_.world->rank(r).stream);
    ASSERT_TRUE(group_.finish());
  }
  LossScaleState scale(std::uint32_t r) const {
    return WorkingGroup::get<LossScaleState>(group_.world->rank(r), scales_[r])[0];
  }
  std::vector<float> parameters() const {
    return WorkingGroup::get<float>(group_.world->rank(0), group_.world->rank(0).parameters);
  }
  std::vector<std::uint16_t> copy() const {
    return WorkingGroup::get<std::uint16_t>(group_.world->rank(0), group_.world->rank(0).half);
  }
  StepSums total(std::uint32_t r, std::uint64_t step) {
    return WorkingGroup::get<StepSums>(group_.world->rank(r), group_.work_of(r, step, spec_.buckets[0]).total)[0];
  }

 private:
  static MakeDevice devices() {
    return [](AddressSpace& space, std::uint32_t, ActiveWait&) {
      return make_cuda_device(space, {.products = "own", .convolutions = "own"});
    };
  }
  const GroupSpec spec_ = two_ranks();
  WorkingGroup group_;
  std::vector<Memory> scales_;
  std::vector<std::unique_ptr<Exchange>> exchanges_;
};

TEST(CudaLossScale, LeavesAStepOutAtAllRanksAsIfItHadNotBeenWhereOneOverflows) {
  ScaledGroup with{kScaling}, without{kScaling};
  for (std::uint64_t step = 0; step < 6; ++step) with.enqueue(step, step, step == 3);
  for (std::uint64_t step = 0; step < 5; ++step) without.enqueue(step, step < 3 ? step : step + 1);
  with.finish();
  without.finish();
  EXPECT_EQ(with.parameters(), without.parameters());
  for (std::uint32_t r = 0; r < 2; ++r) {
    SCOPED_TRACE(text("rank ", r));
    EXPECT_EQ(with.scale(r).now, (LossScale{512, 1.0F / 512, 2, 1}));
    EXPECT_EQ(with.scale(r).agreed, with.scale(r).now);
    EXPECT_EQ(bad_rank(with.total(r, 3).bad_gradient), 1U);
    EXPECT_EQ(without.scale(r).now, (LossScale{2048, 1.0F / 2048, 1, 0}));  // step 2 has no samples, and no update
  }
}

TEST(CudaLossScale, DoublesTheScaleAfterUpdatesWithoutAnOverflow) {
  ScaledGroup group{kScaling};
  group.enqueue(0, 0, true);
  for (std::uint64_t step = 1; step < 5; ++step) group.enqueue(step, step + 2);
  group.finish();
  for (std::uint32_t r = 0; r < 2; ++r) EXPECT_EQ(group.scale(r).now, (LossScale{1024, 1.0F / 1024, 1, 1}));
}

TEST(CudaLossScale, WritesTheWeightsInF16) {
  ScaledGroup group{kScaling};
  group.enqueue(0, 0);
  group.finish();
  std::vector<std::uint16_t> wanted;
  for (const float value : group.parameters()) wanted.push_back(to_f16(value));
  EXPECT_EQ(group.copy(), wanted);
}

TEST(CudaLossScale, StaysWhereItIsFixed) {
  ScaledGroup group{{.fixed = 100, .growth_steps = 1}};
  for (std::uint64_t step = 0; step < 3; ++step) group.enqueue(step, step + 3, step == 1);
  group.finish();
  EXPECT_EQ(group.scale(1).now.scale, 100.0F);
  EXPECT_EQ(group.scale(1).now.left_out, 1U);
}

}  // namespace
}  // namespace troupe::contracts
