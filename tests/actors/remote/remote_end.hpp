#pragma once

#include <atomic>
#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "actors/caf_compatibility.hpp"
#include "actors/remote/remote_actors.hpp"
#include "devices/fake/fake_device.hpp"
#include "transports/loopback/loopback_transport.hpp"

// What the tests of remote actors need at each end, in this process or in a child process.
namespace troupe::test {

using Echo = caf::atom_constant<caf::atom("echo")>;      // (Echo, x): x
using Note = caf::atom_constant<caf::atom("note")>;      // (Note, thread, number [, x]): counted, order checked
using Noted = caf::atom_constant<caf::atom("noted")>;    // how many notes, how many of them out of order
using Hang = caf::atom_constant<caf::atom("hang")>;      // never answered
using Where = caf::atom_constant<caf::atom("where")>;    // (Where, tensor): arena and offset there
using Digest = caf::atom_constant<caf::atom("digest")>;  // (Digest, tensor...): a number for each content
using Keep = caf::atom_constant<caf::atom("keep")>;      // keeps a tensor
using Forget = caf::atom_constant<caf::atom("forget")>;  // drops what it keeps
using Worker = caf::atom_constant<caf::atom("worker")>;  // a new server of its own
using Quit = caf::atom_constant<caf::atom("quit")>;      // (Quit, code, text): ends with that error
using Last =
    caf::atom_constant<caf::atom("last")>;  // (Last, bytes): answers with a tensor of that size and ends at once
using Publish = caf::atom_constant<caf::atom("publish")>;  // (Publish, name): publishes the server under another name
using Untravelled = caf::atom_constant<caf::atom("untravel")>;  // answers with a type that is not registered
using Pass = caf::atom_constant<caf::atom("pass")>;             // (Pass, other, x): the other one answers (Echo, x)

/// Registered in all processes; its inspect throws where `where` says.
struct Thorny {
  enum Where : std::uint8_t { nowhere, writing, reading };
  std::uint8_t where = nowhere;
};
/// A type that is not registered.
struct Unregistered {
  std::uint64_t value = 0;
};

/// A type that must not leave its process.
struct Private {
  std::uint64_t value = 0;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Thorny& x) {
  if (Inspector::reads_state && x.where == Thorny::writing) throw std::runtime_error("a thorn in writing");
  auto prick = [&]() -> caf::error {
    if (x.where == Thorny::reading) throw std::runtime_error("a thorn in reading");
    return {};
  };
  return f(caf::meta::type_name("test.Thorny"), x.where, caf::meta::load_callback(prick));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Unregistered& x) {
  return f(caf::meta::type_name("test.Unregistered"), x.value);
}

/// The sum of a tensor's bytes, each times its position.
std::uint64_t digest(const AddressSpace& space, const Tensor& tensor);

struct Config : caf::actor_system_config {
  Config();
};

/// One process's end: an actor system with a server, an address space, a transport, lanes, remote actors.
class RemoteEnd {
 public:
  using MakeTransport = std::function<std::unique_ptr<Transport>(AddressSpace&)>;
  /// With `its_device`: it has a device whose memory the host cannot access.
  RemoteEnd(Peer self, const MakeTransport& make_transport, RemoteOptions options = {},
            const std::optional<FakeOptions>& its_device = {});
  ~RemoteEnd();

  /// Plain bytes for the other end, and the other end's; then start() runs the lanes.
  std::vector<std::byte> introduction() const;
  void meet(Peer peer, std::span<const std::byte> introduction);
  void start();
  bool stop(Clock::duration within = std::chrono::seconds(10));

  /// A tensor of `bytes` (a multiple of 4) with contents from `seed`, in this end's own arena, which nobody shares, or
  /// in the one that both ends have mapped.
  Tensor tensor(std::uint64_t bytes, std::uint64_t seed, bool shared = false, Point valid_from = {},
                std::shared_ptr<const void> owner = nullptr);
  Memory fresh(std::uint64_t bytes, bool shared);
  /// The same in the device's memory, in an arena of this number. Before tensors of it are sent.
  Tensor tensor_on_device(std::uint32_t arena, std::uint64_t bytes, std::uint64_t seed, Point valid_from = {},
                          std::shared_ptr<const void> owner = nullptr);

  const Peer self;
  AddressSpace space;
  std::unique_ptr<FakeDevice> device;
  std::shared_ptr<Arena> own;
  std::shared_ptr<Arena> common;  // made by peer 0
  Config config;
  caf::actor_system system;
  std::unique_ptr<RemoteActors> remote;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<LaneLoop> control;
  std::unique_ptr<LaneLoop> bulk;
  caf::actor server;
  std::atomic<std::uint64_t> told_dropped{0};
};

/// Two connected ends; the tests act at `here`, peer 0, and send to `server` at peer 1.
class World {
 public:
  /// What make() takes: loopback, or shm and tcp with a process of its own for the other end; by what the program
  /// links.
  static std::vector<std::string> kinds();
  static std::unique_ptr<World> make(const std::string& kind, RemoteOptions options_here = {});
  virtual ~World() = default;
  /// As SIGKILL does; returns when it is dead.
  virtual void kill_there() = 0;

  std::unique_ptr<RemoteEnd> here;
  caf::actor server;
  static constexpr Peer kThere{1};
};

/// Two ends in this process, both accessible.
class LoopbackWorld final : public World {
 public:
  explicit LoopbackWorld(LoopbackAdversity adversity = {}, RemoteOptions options_here = {},
                         RemoteOptions options_there = {}, const std::optional<FakeOptions>& devices = {});
  ~LoopbackWorld() override;
  void kill_there() override { network.kill(kThere); }

  LoopbackNetwork network;
  std::unique_ptr<RemoteEnd> there;
};

/// The other end's handle of an actor of one end.
caf::actor at_other_end(RemoteEnd& its, RemoteEnd& other, const caf::actor& actor);

/// Runs as a child process, if the arguments ask for it.
std::optional<int> run_as_child(int argc, char** argv);

}  // namespace troupe::test

TROUPE_LOCAL_MESSAGE(troupe::test::Private)
