#include "transports/collectives/hierarchical_communicator.hpp"

#include <gtest/gtest.h>

#include "tests/transports/communicator_worlds.hpp"
#include "tests/transports/cpu_ranks.hpp"
#include "tests/transports/loopback_ends.hpp"

namespace troupe::contracts {
namespace {

CommunicatorCase nodes_case(std::string name, std::function<MakeDevice(const GroupSpec&)> devices, bool adverse) {
  return {std::move(name), [=](const GroupSpec& spec) {
            const LoopbackAdversity adversity{spec.seed + 1, adverse ? 30u : 0u, adverse ? 40u : 0u};
            return std::make_unique<HierarchicalWorld>(spec, devices(spec), std::make_unique<LoopbackEnds>(adversity));
          }};
}
MakeDevice fakes(const GroupSpec& spec) { return fake_devices(spec.seed); }
MakeDevice threads(const GroupSpec&) { return reference_devices(); }
MakeDevice far(const GroupSpec& spec) { return far_devices(spec.seed); }
MakeDevice drivers(const GroupSpec&) { return cpu_devices(); }

INSTANTIATE_TEST_SUITE_P(Hierarchical, CommunicatorContract,
                         ::testing::Values(nodes_case("Fake", fakes, false), nodes_case("Threads", threads, false),
                                           nodes_case("AdverseFake", fakes, true),
                                           nodes_case("AdverseFarMemory", far, true),
                                           nodes_case("AdverseThreads", threads, true)),
                         communicator_name);
INSTANTIATE_TEST_SUITE_P(HierarchicalDrivenByStreams, CommunicatorContract,
                         ::testing::ValuesIn(if_cpu_device({nodes_case("Cpu", drivers, false),
                                                            nodes_case("AdverseCpu", drivers, true)})),
                         communicator_name);

}  // namespace
}  // namespace troupe::contracts
