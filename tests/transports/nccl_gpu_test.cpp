#include <algorithm>

#include "tests/support/gpu.hpp"
#include "tests/transports/nccl_worlds.hpp"

// A rank on each GPU of this machine, over the NCCL that the dynamic loader finds.
namespace troupe::contracts {
namespace {

constexpr std::uint64_t kSteps = 12;
constexpr std::size_t kMostRanks = 4;

std::string why_no_nccl() {
  return gpu::in_child([] {
    try {
      (void)make_nccl_id(TROUPE_NCCL_HOST);
      return std::string{};
    } catch (const Error& error) {
      return std::string{error.what()};
    }
  });
}

/// A group of as many ranks as there are GPUs, with one bucket.
GroupSpec group_of_gpus(std::uint64_t seed) {
  GroupSpec spec = random_group(static_cast<std::uint32_t>(std::min(gpu::count(), kMostRanks)), seed);
  spec.buckets = {{GroupId{}, 0, 0, spec.elements}};
  return spec;
}

/// With sums in the ranks' order, whose bits are those of a serial run.
CommunicatorCase in_rank_order() {
  return {"", [](const GroupSpec& spec) { return std::make_unique<NcclWorld>(spec, /*rank_ordered=*/true); }, 1};
}

/// `as_pieces`: each exchange as recorded work.
void expect_bits_of_a_serial_run(const GroupSpec& spec, bool as_pieces) {
  std::vector<Programs> programs(spec.ranks);
  WorkingGroup group{spec, in_rank_order()};
  std::vector<std::vector<Memory>> seen(kSteps);
  for (std::uint64_t step = 0; step < kSteps; ++step)
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      RankView& view = group.world->rank(r);
      const Bucket& bucket = spec.buckets[0];
      group.enqueue_gradients(r, step, bucket, WorkingGroup::put(view, SerialRun::gradients(spec, r, step)));
      const StripeMemory mine = group.part_of(r, bucket);
      const auto exchange = [&] {
        view.stream->wait(view.communicator->reduce_update_gather(
            *view.stream, group.work_of(r, step, bucket, {&mine, 1}), rule_step(spec.rule, step + 1)));
      };
      if (as_pieces)
        view.stream->enqueue(programs[r], exchange);
      else
        exchange();
      seen[step].push_back(view.arena->allocate(spec.elements * sizeof(float)));
      view.stream->copy(seen[step].back(), view.parameters);
    }
  ASSERT_TRUE(group.finish());
  SerialRun serial{spec};
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    serial.take_step(step);
    for (std::uint32_t r = 0; r < spec.ranks; ++r)
      ASSERT_EQ(WorkingGroup::get<float>(group.world->rank(r), seen[step][r]), serial.parameters)
          << "step " << step << ", rank " << r;
  }
  for (const Programs& kept : programs) EXPECT_TRUE(!as_pieces || kept.replayed() >= kSteps / 2);
  programs.clear();  // NCCL's graphs end before its communicators
}

TEST(NcclOnGpus, GivesEveryRankTheBitsOfASerialRun) {
  if (const std::string why = why_no_nccl(); !why.empty()) GTEST_SKIP() << why;
  expect_bits_of_a_serial_run(group_of_gpus(11), /*as_pieces=*/false);
}

TEST(NcclOnGpus, GivesTheSameBitsWhereStepsAreReplayed) {
  if (const std::string why = why_no_nccl(); !why.empty()) GTEST_SKIP() << why;
  expect_bits_of_a_serial_run(group_of_gpus(12), /*as_pieces=*/true);
}

}  // namespace
}  // namespace troupe::contracts
