#include "transports/loopback/loopback_transport.hpp"

#include <gtest/gtest.h>

#include "tests/contracts/transport_contract.hpp"

namespace troupe::testing {
namespace {

class LoopbackHome final : public TransportHome {
 public:
  explicit LoopbackHome(LoopbackAdversity adversity) : network_(adversity) {}
  std::unique_ptr<Transport> make(Peer self, AddressSpace& space) override { return network_.endpoint(self, space); }

 private:
  LoopbackNetwork network_;
};

TransportCase loopback(std::string name, LoopbackAdversity adversity) {
  return {std::move(name), [=] { return std::make_unique<LoopbackHome>(adversity); }};
}

INSTANTIATE_TEST_SUITE_P(Loopback, TransportContract,
                         ::testing::Values(loopback("Plain", {}),
                                           loopback("Adverse", {.seed = 3, .delay_rounds = 20, .refuse_percent = 30})),
                         TransportCase::name_of);

class Loopback : public ::testing::Test {
 protected:
  TransportNode::Make on(LoopbackNetwork& network) {
    return [&network](Peer self, AddressSpace& space) { return network.endpoint(self, space); };
  }
};

TEST_F(Loopback, PeersHearOnceALaneOfOneThatWasKilled) {
  NotedSend done;
  LoopbackNetwork network;
  TransportNode alice{Peer{0}, on(network)};
  TransportNode bob{Peer{1}, on(network)};
  alice.connect(bob);
  network.kill(bob.self);
  for (int i = 0; i < 5; ++i) alice.progress();
  EXPECT_EQ(alice.at(Channel::actors).times_lost(bob.self), 2u);
  EXPECT_EQ(alice.at(Channel::exchange).times_lost(bob.self), 2u);
  ASSERT_TRUE(alice.send(bob.self, Lane::bulk, 1, alice.prepare(1, 100), done));
  alice.progress();
  EXPECT_EQ(done.status().code(), Code::peer_lost);
}

TEST_F(Loopback, AKilledPeerNeverMovesAgain) {
  NotedSend done;
  LoopbackNetwork network;
  TransportNode alice{Peer{0}, on(network)};
  TransportNode bob{Peer{1}, on(network)};
  alice.connect(bob);
  ASSERT_TRUE(bob.send(alice.self, Lane::control, 1, {}, done));
  network.kill(bob.self);
  EXPECT_FALSE(bob.progress());
  alice.progress();
  EXPECT_EQ(alice.count(), 0u);
  EXPECT_EQ(done.times(), 0);
  bob.transport.reset();
  EXPECT_EQ(done.status().code(), Code::aborted);
}

TEST_F(Loopback, ALandingOfAPeerThatIsKilledIsDropped) {
  NotedSend done;
  LoopbackNetwork network{{.seed = 1, .delay_rounds = 1000}};
  TransportNode alice{Peer{0}, on(network)};
  TransportNode bob{Peer{1}, on(network)};
  alice.connect(bob);
  ASSERT_TRUE(alice.send(bob.self, Lane::bulk, 1, alice.prepare(1, 100), done));
  while (bob.at(Channel::actors).landings_open() == 0) {
    alice.progress();
    bob.progress();
  }
  network.kill(alice.self);
  bob.progress();
  EXPECT_EQ(bob.at(Channel::actors).dropped_landings().size(), 1u);
  EXPECT_EQ(bob.count(), 0u);
}

TEST_F(Loopback, AdversityLetsMessagesOvertakeEachOther) {
  std::deque<NotedSend> sends(50);
  LoopbackNetwork network{{.seed = 9, .delay_rounds = 10}};
  TransportNode alice{Peer{0}, on(network)};
  TransportNode bob{Peer{1}, on(network)};
  alice.connect(bob);
  for (std::uint64_t i = 0; i < sends.size(); ++i) ASSERT_TRUE(alice.send(bob.self, Lane::control, i, {}, sends[i]));
  for (int i = 0; i < 30; ++i) {
    alice.progress();
    bob.progress();
  }
  const auto got = bob.at(Channel::actors).got();
  ASSERT_EQ(got.size(), sends.size());
  EXPECT_FALSE(std::is_sorted(got.begin(), got.end(), [](const Got& a, const Got& b) { return a.seed < b.seed; }));
}

TEST_F(Loopback, APeerHasOneEndpoint) {
  LoopbackNetwork network;
  AddressSpace space;
  const auto first = network.endpoint(Peer{4}, space);
  EXPECT_THROW(network.endpoint(Peer{4}, space), Error);
}

}  // namespace
}  // namespace troupe::testing
