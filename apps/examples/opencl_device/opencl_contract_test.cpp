#include "opencl_device.hpp"
#include "tests/contracts/device_contract.hpp"
#include "tests/contracts/golden_contract.hpp"
#include "tests/contracts/replica_contract.hpp"
#include "tests/contracts/stream_contract.hpp"

namespace troupe::contracts {

DeviceCase opencl_case() {
  return {"opencl", [](AddressSpace& space, std::chrono::milliseconds deadline) {
            return opencl::make_opencl_device(space, deadline);
          }};
}

INSTANTIATE_TEST_SUITE_P(OpenCl, StreamContract, ::testing::Values(opencl_case()), case_name);
INSTANTIATE_TEST_SUITE_P(OpenCl, ReplicaContract, ::testing::Values(opencl_case()), case_name);
INSTANTIATE_TEST_SUITE_P(OpenCl, GoldenContract, ::testing::Values(opencl_case()), case_name);
INSTANTIATE_TEST_SUITE_P(OpenCl, DeviceContract, ::testing::Values(opencl_case()), case_name);

}  // namespace troupe::contracts
