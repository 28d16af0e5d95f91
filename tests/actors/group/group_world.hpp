#pragma once

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/atom.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/typed_actor.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/group/group.hpp"
#include "transports/loopback/loopback_transport.hpp"

namespace troupe::test {

using Who = caf::atom_constant<caf::atom("who")>;      // which peer
using Add = caf::atom_constant<caf::atom("add")>;      // (Add, number): counted
using Sum = caf::atom_constant<caf::atom("sum")>;      // of all that was added
using Hang = caf::atom_constant<caf::atom("hang")>;    // never answered
using Sulk = caf::atom_constant<caf::atom("sulk")>;    // answered with an error
using Stay = caf::atom_constant<caf::atom("stay")>;    // from now on does not end when asked to
using Go = caf::atom_constant<caf::atom("go")>;        // ends
using Echo = caf::atom_constant<caf::atom("echo")>;    // (Echo, tensor)
using Trace = caf::atom_constant<caf::atom("trace")>;  // all that was added, in order

constexpr auto kLong = std::chrono::seconds(20);
inline Deadline long_enough() { return Deadline::after(kLong); }

/// The error that `work` throws.
template <class Work>
Status error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error.status();
  }
  return {};
}

inline std::string text_of(const Status& status) { return std::string(status.text()); }

/// A typed handle of the actor.
using Calculator =
    caf::typed_actor<caf::replies_to<std::uint64_t, std::uint64_t>::with<std::uint64_t>, caf::reacts_to<Go>>;

/// A type that is not registered.
struct Unregistered {
  std::uint64_t value = 0;
};
template <class Inspector>
auto inspect(Inspector& f, Unregistered& x) {
  return f(caf::meta::type_name("test.Unregistered"), x.value);
}

/// Begins with the given number, and adds.
caf::behavior counter(caf::event_based_actor* self, std::uint64_t number);

/// The same as a class, with a name; throws when that is "thorn".
class NamedCounter final : public caf::event_based_actor {
 public:
  NamedCounter(caf::actor_config& config, const std::string& name, std::uint64_t number);

 private:
  caf::behavior make_behavior() override;
  const std::string name_;
  const std::uint64_t number_;
};

struct GroupConfig : caf::actor_system_config {
  GroupConfig();
};

/// One process of a group.
struct GroupEnd {
  GroupConfig config;
  caf::actor_system system{config};
  std::unique_ptr<Group> group;
  caf::actor counter;  // with the peer's number, published as "counter"
  std::mutex mutex;    // guards what follows
  std::vector<std::string> dropped;
  std::vector<Peer> lost;  // as GroupOptions::lost told
};

/// A group whose processes are all in this one.
class GroupWorld {
 public:
  /// `arena_bytes` by peer; peers without an entry have none.
  explicit GroupWorld(std::uint32_t size, std::vector<std::uint64_t> arena_bytes = {});
  ~GroupWorld();

  Group& group(std::uint32_t peer) { return *ends.at(peer)->group; }
  caf::actor_system& system(std::uint32_t peer) { return ends.at(peer)->system; }
  /// The counters of all peers, as peer 0 knows them: a mesh of one dimension "peer".
  Mesh counters();
  /// Ends it as SIGKILL would; its destructor then does not stop it.
  void kill(std::uint32_t peer);

  LoopbackNetwork network;
  std::vector<std::unique_ptr<GroupEnd>> ends;
  Blocking blocking = Blocking::on_thread("test");
};

}  // namespace troupe::test
