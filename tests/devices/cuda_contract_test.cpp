#include "devices/cuda/cuda_device.hpp"
#include "tests/contracts/device_contract.hpp"
#include "tests/contracts/golden_contract.hpp"
#include "tests/contracts/layer_contract.hpp"
#include "tests/contracts/replica_contract.hpp"
#include "tests/contracts/stream_contract.hpp"
#include "tests/support/gpu.hpp"

// The CUDA device over the driver that is found. The stand-in ends the program with an error when work was not ordered,
// memory was used that was freed or not declared, or anything was left behind.
namespace troupe::contracts {
namespace {

DeviceCase cuda_case() {
  return {"Gpu", [](AddressSpace& space, std::chrono::milliseconds deadline) {
            return make_cuda_device(space, {.wait_deadline = deadline});
          }};
}

INSTANTIATE_TEST_SUITE_P(Cuda, StreamContract, ::testing::Values(cuda_case()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, ReplicaContract, ::testing::Values(cuda_case()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, LayerContract, ::testing::Values(cuda_case()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, GoldenContract, ::testing::Values(cuda_case()), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceContract, ::testing::Values(cuda_case()), case_name);

}  // namespace
}  // namespace troupe::contracts
