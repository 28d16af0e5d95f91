#include <algorithm>

#include "tests/support/gpu.hpp"
#include "tests/transports/nccl_worlds.hpp"

// A rank on each GPU of this machine, over the NCCL that the dynamic loader finds.
namespace troupe::contracts {
namespace {

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

TEST(NcclOnGpus, GivesEveryRankTheBitsOfASerialRun) {
  if (const std::string why = why_no_nccl(); !why.empty()) GTEST_SKIP() << why;
  expect_bits_of_a_serial_run(group_of_gpus(11), in_rank_order(), /*as_pieces=*/false);
}

TEST(NcclOnGpus, GivesTheSameBitsWhereStepsAreReplayed) {
  if (const std::string why = why_no_nccl(); !why.empty()) GTEST_SKIP() << why;
  expect_bits_of_a_serial_run(group_of_gpus(12), in_rank_order(), /*as_pieces=*/true);
}

}  // namespace
}  // namespace troupe::contracts
