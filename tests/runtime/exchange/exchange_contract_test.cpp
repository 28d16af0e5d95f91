// The exchange of a synchronous group over each communicator there is, on a device that a seed drives and on one
// with a thread.

#include "tests/contracts/exchange_contract.hpp"

#include "tests/transports/communicator_worlds.hpp"
#include "tests/transports/loopback_ends.hpp"

namespace troupe::contracts {
namespace {

using Devices = std::function<MakeDevice(const GroupSpec&)>;
const Devices kFakes = [](const GroupSpec& spec) { return fake_devices(spec.seed); };
const Devices kFar = [](const GroupSpec& spec) { return far_devices(spec.seed); };
const Devices kThreads = [](const GroupSpec&) { return reference_devices(); };

std::unique_ptr<Exchange> in_rounds(const GroupSpec& spec, const RankView& view, std::uint64_t updates) {
  return make_policy_exchange({.communicator = view.communicator,
                               .rule = spec.rule,
                               .policy = std::make_unique<PolicySequence>(std::vector<PolicyPhase>{{}}, spec.ranks),
                               .buckets = spec.buckets,
                               .memory = {.gradients = view.gradients, .mine = {view.mine}},
                               .updates = updates});
}
ExchangeCase arena_case(std::string name, const Devices& devices) {
  return {{std::move(name), [=](const GroupSpec& spec) { return std::make_unique<ArenaWorld>(spec, devices(spec)); }},
          in_rounds};
}
ExchangeCase direct_case(std::string name, const Devices& devices) {
  return {{std::move(name),
           [=](const GroupSpec& spec) {
             return std::make_unique<DirectWorld>(spec, devices(spec), std::make_unique<LoopbackEnds>());
           }},
          in_rounds};
}

INSTANTIATE_TEST_SUITE_P(Rounds, ExchangeContract,
                         ::testing::Values(arena_case("ArenaFake", kFakes), arena_case("ArenaFar", kFar),
                                           arena_case("ArenaThreads", kThreads), direct_case("DirectFar", kFar),
                                           direct_case("DirectFake", kFakes), direct_case("DirectThreads", kThreads)),
                         exchange_name);

}  // namespace
}  // namespace troupe::contracts
