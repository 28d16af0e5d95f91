// Two processes that connect to each other over UCX at the same moment, while one of them is fencing the other.

#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "tests/contracts/transport_node.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::testing {
namespace {

class UcxConnecting : public ::testing::TestWithParam<UcxMeans> {
 protected:
  static std::unique_ptr<Transport> make(Peer self, AddressSpace& space) {
    UcxOptions options{.self = self, .means = GetParam()};
    if (GetParam() == UcxMeans::tcp) options.network_devices = "lo";
    options.flush = std::chrono::milliseconds{0};
    return make_ucx_transport(space, options);
  }
};

TEST_P(UcxConnecting, IsSurvivedByAPeerThatIsFencedInTheMiddle) {
  constexpr int kRounds = 40;
  for (unsigned seed = 1; seed <= kRounds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random{seed};
    const auto up_to = [&](int most) { return std::uniform_int_distribution{0, most}(random); };
    std::deque<NotedSend> sends(4);  // outlive the transports
    TransportNode alice{Peer{0}, make};
    TransportNode bob{Peer{1}, make};
    alice.connect(bob);
    const auto go = [&](int turns) {
      while (turns-- > 0) (up_to(1) == 0 ? alice : bob).transport->progress(Lane::control);
    };
    alice.send(bob.self, Lane::control, 1, alice.prepare(1, up_to(2) == 0 ? 100'000 : 100), sends[0]);
    go(up_to(5));
    bob.send(alice.self, Lane::control, 1, bob.prepare(1, up_to(2) == 0 ? 100'000 : 100), sends[1]);
    go(up_to(40));
    alice.transport->fence(bob.self, Lane::control, {Code::peer_lost, "it was silent"});
    alice.send(bob.self, Lane::control, 2, alice.prepare(2, 100), sends[2]);
    bob.send(alice.self, Lane::control, 2, bob.prepare(2, 100), sends[3]);
    go(400);
    EXPECT_EQ(sends[0].times(), 1);
    EXPECT_EQ(sends[2].times(), 1);
    EXPECT_EQ(sends[2].status().code(), Code::peer_lost);
  }
}

INSTANTIATE_TEST_SUITE_P(Over, UcxConnecting, ::testing::Values(UcxMeans::shm, UcxMeans::tcp), [](const auto& info) {
  return info.param == UcxMeans::shm ? std::string{"Shm"} : std::string{"Tcp"};
});

}  // namespace
}  // namespace troupe::testing
