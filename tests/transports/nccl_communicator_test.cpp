#include "tests/transports/nccl_worlds.hpp"

// Ranks with a GPU each, over the stand-ins for the driver and for NCCL.
namespace troupe::contracts {
namespace {

CommunicatorCase nccl_case(bool rank_ordered) {
  const auto make = [rank_ordered](const GroupSpec& spec) { return std::make_unique<NcclWorld>(spec, rank_ordered); };
  return {rank_ordered ? "InRankOrder" : "InItsOwnOrder", make, 1};
}

INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorContract, ::testing::Values(nccl_case(true), nccl_case(false)),
                         communicator_name);

}  // namespace
}  // namespace troupe::contracts
