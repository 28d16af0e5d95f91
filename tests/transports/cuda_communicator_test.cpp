#include "devices/cuda/cuda_device.hpp"
#include "tests/support/gpu.hpp"
#include "tests/transports/communicator_worlds.hpp"

// Ranks on one GPU: their streams, and the test's own threads, order each other by
// lines in shared arenas, and their gradients and parameters are in the GPU's memory.
namespace troupe::contracts {
namespace {

CommunicatorCase cuda_case() {
  const MakeDevice devices = [](AddressSpace& space, std::uint32_t, ActiveWait&) {
    return make_cuda_device(space, {.products = "own", .convolutions = "own"});
  };
  return {"Gpu", [devices](const GroupSpec& spec) { return std::make_unique<ArenaWorld>(spec, devices); }, 1};
}

INSTANTIATE_TEST_SUITE_P(CudaArena, CommunicatorContract, ::testing::Values(cuda_case()), communicator_name);

}  // namespace
}  // namespace troupe::contracts
