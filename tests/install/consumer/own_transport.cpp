// A transport from outside of the source tree: one that passes everything on to another, and refuses every third
// message at first. The installed suite holds it to what every transport promises.
#include <atomic>
#include <memory>
#include <utility>

#include "tests/contracts/transport_contract.hpp"
#include "transports/loopback/loopback_transport.hpp"

namespace troupe::testing {
namespace {

class RefusingTransport final : public Transport {
 public:
  explicit RefusingTransport(std::unique_ptr<Transport> under) : under_(std::move(under)) {}
  std::string description() const override { return "refusing, over " + under_->description(); }
  bool carries(MemoryKind kind) const noexcept override { return under_->carries(kind); }
  std::vector<std::byte> address() const override { return under_->address(); }
  void connect(Peer peer, std::span<const std::byte> address) override { under_->connect(peer, address); }
  void receive(Channel channel, Receiver& receiver) override { under_->receive(channel, receiver); }
  bool send(Peer to, Lane lane, Class priority, Channel channel, std::span<const std::byte> head,
            std::span<const Memory> payload, SendDone& done) override {
    return ++asked_ % 3 != 0 && under_->send(to, lane, priority, channel, head, payload, done);
  }
  bool progress(Lane lane) override { return under_->progress(lane); }
  bool arm(Lane lane) override { return under_->arm(lane); }
  int fd(Lane lane) const override { return under_->fd(lane); }
  void fence(Peer peer, Lane lane, const Status& why) noexcept override { under_->fence(peer, lane, why); }

 private:
  const std::unique_ptr<Transport> under_;
  std::atomic<unsigned> asked_ = 0;
};

class Home final : public TransportHome {
 public:
  std::unique_ptr<Transport> make(Peer self, AddressSpace& space) override {
    return std::make_unique<RefusingTransport>(network_.endpoint(self, space));
  }

 private:
  LoopbackNetwork network_;
};

INSTANTIATE_TEST_SUITE_P(Refusing, TransportContract,
                         ::testing::Values(TransportCase{"OverLoopback", [] { return std::make_unique<Home>(); }}),
                         TransportCase::name_of);

}  // namespace
}  // namespace troupe::testing
