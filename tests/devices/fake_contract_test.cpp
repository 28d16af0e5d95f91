#include "devices/fake/fake_device.hpp"
#include "tests/contracts/device_contract.hpp"
#include "tests/contracts/golden_contract.hpp"
#include "tests/contracts/layer_contract.hpp"
#include "tests/contracts/replica_contract.hpp"
#include "tests/contracts/stream_contract.hpp"

namespace troupe::contracts {
namespace {

DeviceCase fake_case(std::string name, FakeOptions options) {
  return {std::move(name),
          [options](AddressSpace& space, std::chrono::milliseconds) {
            return std::make_unique<FakeDevice>(space, options);
          },
          /*waits_have_deadlines=*/false};
}
const auto kFakes = ::testing::Values(
    fake_case("Fake", {}), fake_case("FakeThatDelays", {.seed = 5, .delay_one_in = 2}),
    fake_case("FakeWithFarMemory", {.seed = 6, .delay_one_in = 3, .simulated_memory = true}),
    fake_case("FakeThatComputesTheGraphInFarMemory", {.simulated_memory = true, .computes_graph = true}),
    fake_case("FakeThatRunsItself", {.simulated_memory = true, .computes_graph = true, .runs_itself = true}));
const auto kComputingFake = ::testing::Values(
    fake_case("FakeThatComputesTheGraphInFarMemory", {.simulated_memory = true, .computes_graph = true}));
INSTANTIATE_TEST_SUITE_P(Fake, LayerContract, kComputingFake, case_name);
INSTANTIATE_TEST_SUITE_P(Fake, GoldenContract, kComputingFake, case_name);
INSTANTIATE_TEST_SUITE_P(Fake, StreamContract, kFakes, case_name);
INSTANTIATE_TEST_SUITE_P(Fake, ReplicaContract, kFakes, case_name);
INSTANTIATE_TEST_SUITE_P(Fake, DeviceContract, kFakes, case_name);

}  // namespace
}  // namespace troupe::contracts
