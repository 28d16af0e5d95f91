#include "actors/remote/remote_actors.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/dialect.hpp"
#include "actors/remote/detail/directory.hpp"
#include "actors/remote/detail/engine.hpp"
#include "actors/remote/network_module.hpp"

namespace troupe {

void configure_remote(caf::actor_system_config& config) {
  load_network_module(config);
  add_messages(config, MessageName<Tensor>{"troupe.Tensor"});
  add_error_names(config);
}

struct RemoteActors::State {
  remote::Engine engine;
};

RemoteActors::RemoteActors(caf::actor_system& system, AddressSpace& space, LaneLoop& control, LaneLoop& bulk, Peer self,
                           RemoteOptions options) {
  TROUPE_CHECK(system.node(), Code::invalid,
               "this actor system has no node id: call configure_remote(config) before it is made");
  state_.reset(new State{remote::Engine(system, space, control, bulk, self, std::move(options))});
}

RemoteActors::~RemoteActors() = default;

std::vector<std::byte> RemoteActors::identity() const { return node_id_bytes(state_->engine.system().node()); }

void RemoteActors::add_peer(Peer peer, std::span<const std::byte> identity) { add_peer(peer, node_id_from(identity)); }

void RemoteActors::add_peer(Peer peer, const caf::node_id& node) { state_->engine.add_peer(peer, node); }

caf::actor_system& RemoteActors::system() const noexcept { return state_->engine.system(); }

std::shared_ptr<InlineHome> RemoteActors::inline_home() const noexcept { return state_->engine.inline_unit(); }

void RemoteActors::publish_any(const std::string& name, caf::strong_actor_ptr actor) {
  caf::anon_send(state_->engine.own_directory(), remote::Publish::value, name,
                 caf::actor_cast<caf::actor>(std::move(actor)));
}

caf::actor RemoteActors::directory(Peer peer) const {
  return peer == state_->engine.self() ? state_->engine.own_directory()
                                       : state_->engine.handle(peer, remote::kDirectory);
}

caf::actor RemoteActors::lookup(Peer peer, caf::actor_id actor) const { return state_->engine.handle(peer, actor); }

caf::actor RemoteActors::resolve(Blocking&, Peer peer, const std::string& name, Deadline deadline) {
  caf::scoped_actor self(state_->engine.system());
  caf::actor found;
  Status status;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left());
  self->request(directory(peer), left, remote::Find::value, name)
      .receive([&](caf::actor& actor) { found = std::move(actor); },
               [&](const caf::error& error) { status = from_caf(error); });
  TROUPE_CHECK(status.code() != Code::timeout, Code::timeout, "no actor named \"", name, "\" was published at peer ",
               peer.value, " within ", left.count(), " ms");
  TROUPE_CHECK(status.ok(), status.code(), "the actor named \"", name, "\" at peer ", peer.value,
               " cannot be found: ", status.text());
  return found;
}

void RemoteActors::lost(Peer peer, const Status& why) { state_->engine.lost_any_thread(peer, why); }

bool RemoteActors::stop(Blocking&, Deadline deadline) { return state_->engine.stop(deadline); }

RemoteCounters RemoteActors::counters() const noexcept { return state_->engine.counters(); }

}  // namespace troupe
