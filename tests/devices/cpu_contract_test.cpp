#include "devices/cpu/cpu_device.hpp"
#include "tests/contracts/device_contract.hpp"
#include "tests/contracts/golden_contract.hpp"
#include "tests/contracts/layer_contract.hpp"
#include "tests/contracts/replica_contract.hpp"
#include "tests/contracts/stream_contract.hpp"

namespace troupe::contracts {

DeviceCase cpu_case() {
  return {"cpu", [](AddressSpace& space, std::chrono::milliseconds deadline) {
            return make_cpu_device(space, {.wait_deadline = deadline});
          }};
}

INSTANTIATE_TEST_SUITE_P(Cpu, StreamContract, ::testing::Values(cpu_case()), case_name);
INSTANTIATE_TEST_SUITE_P(Cpu, ReplicaContract, ::testing::Values(cpu_case()), case_name);
INSTANTIATE_TEST_SUITE_P(Cpu, LayerContract, ::testing::Values(cpu_case()), case_name);
INSTANTIATE_TEST_SUITE_P(Cpu, GoldenContract, ::testing::Values(cpu_case()), case_name);
INSTANTIATE_TEST_SUITE_P(Cpu, DeviceContract, ::testing::Values(cpu_case()), case_name);

}  // namespace troupe::contracts
