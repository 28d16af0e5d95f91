#pragma once

#include <memory>

#include "tests/transports/communicator_worlds.hpp"
#include "transports/loopback/loopback_transport.hpp"

namespace troupe::contracts {

class LoopbackEnds final : public DirectNetwork {
 public:
  explicit LoopbackEnds(LoopbackAdversity adversity = {}) : network(adversity) {}
  std::unique_ptr<Transport> endpoint(Peer self, AddressSpace& space) override { return network.endpoint(self, space); }

  LoopbackNetwork network;
};

}  // namespace troupe::contracts
