#include "actors/remote/remote_actors.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <cstring>
#include <utility>

#include "actors/caf_compatibility.hpp"
#include "actors/caf_error.hpp"
#include "actors/remote/detail/directory.hpp"
#include "actors/remote/detail/engine.hpp"
#include "actors/remote/network_module.hpp"

namespace troupe {

namespace {
/// Messages that an actor handles before the next one has its turn: enough that the change between actors, about a
/// microsecond, does not matter. CAF's default has no limit. Then, if there are as many actors with a constant supply
/// of messages as workers, no other actor would run, for example the directory or the window watcher.
constexpr std::size_t kMessagesPerTurn = 300;
}  // namespace

void configure_remote(caf::actor_system_config& config) {
  load_network_module(config);
  config.set("scheduler.max-throughput", kMessagesPerTurn);
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

/// The node id, followed by the number of bytes of unhandled messages that this process accepts.
std::vector<std::byte> RemoteActors::identity() const {
  const std::uint64_t offers = state_->engine.offers();
  std::vector<std::byte> bytes = node_id_bytes(state_->engine.system().node());
  const auto* const tail = reinterpret_cast<const std::byte*>(&offers);
  bytes.insert(bytes.end(), tail, tail + sizeof offers);
  return bytes;
}

caf::node_id RemoteActors::node_in(std::span<const std::byte> identity) {
  TROUPE_CHECK(identity.size() > sizeof(std::uint64_t), Code::corrupt, "an identity of ", identity.size(),
               " bytes is too short");
  return node_id_from(identity.first(identity.size() - sizeof(std::uint64_t)));
}

void RemoteActors::add_peer(Peer peer, std::span<const std::byte> identity) {
  const caf::node_id node = node_in(identity);
  std::uint64_t offers = 0;
  std::memcpy(&offers, identity.last(sizeof offers).data(), sizeof offers);
  state_->engine.add_peer(peer, node, offers);
}

caf::actor_system& RemoteActors::system() const noexcept { return state_->engine.system(); }

std::shared_ptr<InlineExecutor> RemoteActors::inline_executor() const noexcept { return state_->engine.inline_unit(); }

void RemoteActors::publish_any(const std::string& name, caf::strong_actor_ptr actor) {
  TROUPE_CHECK(actor, Code::invalid, "the handle that is to be published as \"", name, "\" is empty");
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

void RemoteActors::lost(Peer peer, const Status& why) { state_->engine.lost(peer, why); }

bool RemoteActors::stop(Blocking&, Deadline deadline) { return state_->engine.stop(deadline); }

RemoteCounters RemoteActors::counters() const noexcept { return state_->engine.counters(); }

PeerCounters RemoteActors::counters(Peer peer) const { return state_->engine.counters(peer); }

std::string RemoteActors::describe(Blocking&, Deadline deadline) const { return state_->engine.describe(deadline); }

Callee RemoteActors::callee(const caf::actor& actor) const {
  TROUPE_CHECK(actor, Code::invalid, "a call to no actor");
  return state_->engine.calls().callee(actor);
}

void RemoteActors::call(Callee callee, std::span<const std::byte> question, CallDone& done) {
  TROUPE_CHECK(question.size() <= kMostCallBytes, Code::invalid, "a call with ", question.size(), " bytes; at most ",
               kMostCallBytes, " fit");
  state_->engine.calls().call(callee, question, done);
}

void RemoteActors::post_sink(SinkKey key, Memory memory, std::shared_ptr<const void> owner) {
  state_->engine.arrivals().post_sink(key, memory, std::move(owner));
}

std::size_t RemoteActors::withdraw_sinks(SinkKey key) { return state_->engine.arrivals().withdraw_sinks(key); }

namespace {

remote::Proxy& proxy_of(const caf::actor& actor) {
  auto* const proxy = dynamic_cast<remote::Proxy*>(caf::actor_cast<caf::abstract_actor*>(actor));
  TROUPE_CHECK(proxy != nullptr, Code::invalid, "an actor of this process has no window; give one of another process");
  return *proxy;
}

}  // namespace

void RemoteActors::bound(const caf::actor& remote, Window window, WhenFull when_full) {
  state_->engine.bound(proxy_of(remote), window, when_full);
}

void RemoteActors::wait_for_space(Blocking& blocking, const caf::actor& remote, Deadline deadline) {
  remote::SendWindow* const send_window = proxy_of(remote).send_window();
  if (send_window == nullptr) return;
  TROUPE_CHECK(send_window->wait(blocking, deadline), Code::timeout,
               "an actor's window stayed full until the deadline: ", send_window->count(),
               " messages to it are not handled yet (RemoteActors::bound)");
}

caf::actor RemoteActors::window_watcher() const { return state_->engine.window_watcher(); }

}  // namespace troupe
