#include "tests/actors/remote/remote_end.hpp"

namespace troupe::test {

LoopbackWorld::LoopbackWorld(LoopbackAdversity adversity, RemoteOptions options_here, RemoteOptions options_there,
                             const std::optional<FakeOptions>& devices)
    : network(adversity) {
  const auto endpoint = [this](Peer peer) {
    return [this, peer](AddressSpace& space) { return network.endpoint(peer, space); };
  };
  here = std::make_unique<RemoteEnd>(Peer{0}, endpoint(Peer{0}), std::move(options_here), devices);
  there = std::make_unique<RemoteEnd>(kThere, endpoint(kThere), std::move(options_there), devices);
  here->meet(kThere, there->introduction());
  there->meet(Peer{0}, here->introduction());
  here->start();
  there->start();
  auto blocking = Blocking::on_thread("test");
  server = here->remote->resolve(blocking, kThere, "server", Deadline::after(std::chrono::seconds(20)));
}

LoopbackWorld::~LoopbackWorld() {
  server = {};
  here->stop();
  there->stop(std::chrono::milliseconds(1));  // it may be dead
  there.reset();
  here.reset();
}

std::vector<std::string> World::kinds() { return {"loopback"}; }

std::unique_ptr<World> World::make(const std::string&, RemoteOptions options_here) {
  return std::make_unique<LoopbackWorld>(LoopbackAdversity{}, std::move(options_here));
}

}  // namespace troupe::test
