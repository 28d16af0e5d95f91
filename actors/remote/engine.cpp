#include "actors/remote/detail/engine.hpp"

#include <malloc.h>

#include <algorithm>
#include <caf/actor_registry.hpp>
#include <caf/actor_system.hpp>
#include <caf/blocking_actor.hpp>
#include <caf/exit_reason.hpp>
#include <caf/scheduled_actor.hpp>
#include <caf/sec.hpp>
#include <caf/send.hpp>
#include <cstdlib>
#include <future>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/remote/detail/directory.hpp"
#include "actors/remote/detail/room_keeper.hpp"
#include "runtime/memory/memory_limit.hpp"

namespace troupe::remote {
namespace {

/// Cuts a peer off on the bulk lane; deletes itself.
class BulkCut final : public LaneTask {
 public:
  BulkCut(Outbox& outbox, Bodies& bodies, Transport& transport, Peer peer, Status why)
      : outbox_(outbox), bodies_(bodies), transport_(transport), peer_(peer), why_(std::move(why)) {}
  void run() noexcept override {
    const std::unique_ptr<BulkCut> self(this);
    outbox_.cut(peer_);
    transport_.fence(peer_, Lane::bulk, why_);
    bodies_.forget(peer_);
  }

 private:
  Outbox& outbox_;
  Bodies& bodies_;
  Transport& transport_;
  const Peer peer_;
  const Status why_;
};

/// Of the memory for messages, what waits here and what has come each have half.
std::uint64_t half_of_memory(const RemoteOptions& options) {
  return std::max<std::uint64_t>(options.memory_bytes != 0 ? options.memory_bytes : memory_limit_bytes() / 8, 2) / 2;
}

std::uint64_t landing_bytes(const RemoteOptions& options) {
  return options.landing_bytes != 0 ? options.landing_bytes : 2 * half_of_memory(options);
}

/// At least a few pieces.
std::uint64_t sending_bytes(const RemoteOptions& options) {
  return std::max(options.sending_bytes, 4 * wire::kPieceBytes);
}

/// The memory of a large backlog is given back to the system once it has been gone for so long: that takes
/// milliseconds, and so does getting the memory again.
constexpr auto kGoneFor = std::chrono::seconds(1);
/// How often an actor with a full window is looked at, and everything else.
constexpr auto kLookSoon = std::chrono::milliseconds(20);
constexpr auto kLookLater = std::chrono::milliseconds(200);

/// What the allocator keeps, to the system. malloc_trim() leaves the end of every arena but the main one as it is; that
/// shrinks when a piece of more than 64 KiB in front of it is given back, here in the arena of this thread, which
/// decodes. Source: glibc 2.36, malloc/malloc.c (mtrim, _int_free).
void give_memory_back() {
  constexpr std::size_t kShrinks = 100 << 10;  // less than what is mapped by itself
  void* volatile piece = std::malloc(kShrinks);
  std::free(piece);
  ::malloc_trim(0);
}

/// How to tell whether an actor has looked at all that lies in its mailbox; null: it has none.
auto waiting_test(caf::abstract_actor& actor) -> bool (*)(caf::abstract_actor&) {
  if (dynamic_cast<caf::scheduled_actor*>(&actor) != nullptr)
    return [](caf::abstract_actor& of) { return dynamic_cast<caf::scheduled_actor&>(of).mailbox().blocked(); };
  if (dynamic_cast<caf::blocking_actor*>(&actor) != nullptr)
    return [](caf::abstract_actor& of) { return dynamic_cast<caf::blocking_actor&>(of).mailbox().blocked(); };
  return nullptr;
}

/// The reason why an actor of a lost process ended, as CAF's own networking gives it, with ours as text.
caf::error unreachable(const Status& why) {
  return {static_cast<std::uint8_t>(caf::exit_reason::remote_link_unreachable), caf::atom("exit"),
          caf::make_message(std::string{why.text()})};
}

}  // namespace

void answer(const caf::strong_actor_ptr& sender, caf::message_id id, const caf::error& error) {
  if (sender && id.is_request()) sender->enqueue(nullptr, id.response_id(), caf::make_message(error), nullptr);
}

void answer(const caf::strong_actor_ptr& sender, caf::message_id id, const Status& status) {
  answer(sender, id, to_caf(status));
}

Engine::Engine(caf::actor_system& system, AddressSpace& space, LaneLoop& control, LaneLoop& bulk, Peer self,
               RemoteOptions options)
    : system_(system),
      space_(space),
      control_(control),
      bulk_(bulk),
      self_(self),
      options_(std::move(options)),
      gate_(std::make_shared<Gate>(control)),
      outgoing_(std::make_shared<Budget>(half_of_memory(options_))),
      incoming_(std::make_shared<Budget>(half_of_memory(options_))),
      landing_pool_(std::make_shared<SlabPool>(space, self, options_.first_arena, landing_bytes(options_))),
      sending_pool_(
          std::make_shared<SlabPool>(space, self, options_.first_arena + SlabPool::kArenas, sending_bytes(options_))),
      control_out_(control.transport(), Lane::control, space, sending_pool_, outgoing_, sending_bytes(options_),
                   unfinished_),
      bulk_out_(bulk.transport(), Lane::bulk, space, sending_pool_, outgoing_, sending_bytes(options_), unfinished_),
      unit_(&system),
      inline_(std::make_shared<InlineUnit>(system, gate_, options_.inline_limit, options_.slow)),
      proxies_(system, *this),
      codec_(unit_),
      directory_(spawn_directory(system)),
      rooms_(spawn_room_keeper(system)),
      bodies_(incoming_) {
  TROUPE_CHECK(
      control.lane() == Lane::control && bulk.lane() == Lane::bulk && &control.transport() == &bulk.transport(),
      Code::invalid, "remote actors need the control and the bulk lane of one transport, in this order");
  unit_.proxy_registry_ptr(&proxies_);
  locals_[kDirectory].actor = caf::actor_cast<caf::strong_actor_ptr>(directory_);
  control.transport().receive(Channel::actors, *this);
  control.after_round([this] {
    bool did = inline_->run();
    did |= flush_given_back();
    did |= flush_refused();
    did |= flush_batches();
    return control_out_.pump() || did;
  });
  control.also_drives(bulk);
  control.on_time([this] { return look_around(); });
  bulk.after_round([this] { return bulk_out_.pump(); });
}

Engine::~Engine() {
  gate_->close();
  inline_->close();
  const Status ended{Code::aborted, "this process has ended its connection to other processes"};
  for (CallDone* const done : calls_.close_all()) done->answered(ended, {});
  for (Proxy* next = fresh_.take_all(); next != nullptr;) {
    const caf::strong_actor_ptr proxy(std::exchange(next, next->next_fresh)->ctrl(), false);
  }
  proxies_.clear();
  forget_locals();
  caf::anon_send_exit(directory_, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(rooms_, caf::exit_reason::user_shutdown);
}

void Engine::add_peer(Peer number, const caf::node_id& node, std::uint64_t offered) {
  TROUPE_CHECK(number != self_ && node != system_.node(), Code::invalid, "peer ", number.value,
               " has the identity of this process, peer ", self_.value,
               "; every process needs an actor system of its own");
  TROUPE_CHECK(peer(number) == nullptr && peer(node) == nullptr, Code::invalid, "peer ", number.value,
               " was added before, or another peer with its identity");
  auto state = std::make_unique<PeerState>();
  state->number = number;
  state->node = node;
  state->offered = std::max<std::uint64_t>(offered / wire::kChargeBytes, 1);
  state->intake =
      std::make_shared<PeerIntake>(gate_, incoming_, std::max<std::uint64_t>(offers() / wire::kChargeBytes, 1),
                                   [this, to = state.get()] { send_credit(*to); });
  peers_by_node_[node] = state.get();
  peers_[number] = std::move(state);
  for (auto& [other, of] : peers_) of->share = of->offered / peers_.size();
}

void Engine::post_sink(SinkKey key, Memory memory, std::shared_ptr<const void> owner) {
  TROUPE_CHECK(key.value != 0 && memory.size_bytes > 0, Code::invalid,
               "a sink needs a key other than 0 and memory; key ", key.value, " has ", memory.size_bytes, " bytes");
  space_.address(memory);
  const MemoryKind kind = space_.kind(memory.arena);
  TROUPE_CHECK(control_.transport().carries(kind), Code::unsupported, "nothing lands in ", name_of(kind), " memory by ",
               control_.transport().description(), ": post host memory");
  sinks_.post(key, memory, std::move(owner));
}

PeerState* Engine::peer(Peer number) noexcept {
  const auto found = peers_.find(number);
  return found == peers_.end() ? nullptr : found->second.get();
}

PeerState* Engine::peer(const caf::node_id& node) noexcept {
  const auto found = peers_by_node_.find(node);
  return found == peers_by_node_.end() ? nullptr : found->second;
}

caf::actor Engine::handle(Peer number, caf::actor_id actor) {
  PeerState* const of = peer(number);
  TROUPE_CHECK(of != nullptr, Code::invalid, "peer ", number.value, " is not known here; add_peer comes first");
  return caf::actor_cast<caf::actor>(proxies_.get_or_put(of->node, actor));
}

/// Called with the registry locked, so it only posts.
caf::strong_actor_ptr Engine::make_proxy(caf::node_id node, caf::actor_id actor) {
  PeerState* const of = peer(node);
  if (of == nullptr || actor == caf::invalid_actor_id) return nullptr;
  caf::actor_config config;
  auto made = caf::make_actor<Proxy, caf::strong_actor_ptr>(actor, node, &system_, config, *this, *of);
  auto* const proxy = static_cast<Proxy*>(made->get());
  intrusive_ptr_add_ref(proxy->ctrl());
  fresh_.push(*proxy);
  proxy->wake();
  const std::uint32_t every = std::max(options_.max_actors / 8, 1u);
  if (of->proxies_made.fetch_add(1, std::memory_order_relaxed) % every == every - 1) {
    gate_->run([this, of] {
      if (!of->dead && proxies_.count_proxies(of->node) > options_.max_actors)
        condemn(*of, "too many of its actors are known here (RemoteOptions::max_actors)");
    });
  }
  return made;
}

void Engine::attend_all_fresh() {
  Proxy* next = fresh_.take_all();
  while (next != nullptr) {
    const caf::strong_actor_ptr proxy(next->ctrl(), false);
    attend(*std::exchange(next, next->next_fresh));
  }
}

/// A proxy's first turn: asks its process to tell when the actor ends.
void Engine::attend(Proxy& proxy) {
  if (std::exchange(proxy.watched, true)) return;
  PeerState& to = proxy.peer();
  if (to.dead || ended_) {
    proxies_.erase(to.node, proxy.id(),
                   to.dead ? unreachable(to.why) : to_caf(Status{Code::aborted, "this process is ending"}));
    return;
  }
  send_control(to, {.kind = wire::Kind::monitor, .target = proxy.id()});
}

/// Lets peers reach an actor of this process, and hears of its end. CAF's registry keeps it alive until then.
Engine::Local& Engine::expose(const caf::strong_actor_ptr& actor) {
  const auto [entry, fresh] = locals_.try_emplace(actor->id());
  if (fresh) {
    entry->second.actor = actor;
    entry->second.inline_guest = dynamic_cast<troupe::detail::InlineGuest*>(actor->get());
    entry->second.waits = waiting_test(*actor->get());
    system_.registry().put(actor->id(), actor);
    actor->get()->attach_functor([this, gate = gate_, id = actor->id()](const caf::error& reason) {
      gate->run([this, id, reason] { ended_here(id, reason); });
    });
  }
  return entry->second;
}

Engine::Local* Engine::local(caf::actor_id actor) {
  if (const auto found = locals_.find(actor); found != locals_.end()) return &found->second;
  const caf::strong_actor_ptr known = system_.registry().get(actor);
  return known ? &expose(known) : nullptr;
}

void Engine::ended_here(caf::actor_id actor, const caf::error& reason) {
  if (last_source_ == actor) last_source_ = 0;
  auto entry = locals_.extract(actor);
  if (entry.empty() || ended_) return;
  for (const Peer watcher : entry.mapped().watchers) {
    if (PeerState* const to = peer(watcher); to != nullptr && !to->dead) tell_end(*to, actor, reason);
  }
  for (auto& [from, stream] : entry.mapped().streams) {
    PeerState* const of = peer(from);
    of->held -= stream.held.size();
    for (auto& [sequence, held] : stream.held) {  // never to be delivered, but dealt with
      const wire::Header header = *wire::load(held.head);
      abandon(*of, header, held.head);
      if ((header.flags & wire::kFree) == 0) of->intake->dealt_with(wire::charge_in(header.charge), /*on_lane=*/true);
      settle(*of, header.order);
    }
  }
  std::erase_if(outstanding_, [actor](const auto& request) { return request.first.requester == actor; });
}

void Engine::answer_outstanding(PeerState& of, caf::actor_id target, const caf::error& error) {
  std::erase_if(outstanding_, [&](const auto& entry) {
    const auto& [key, request] = entry;
    if (request.peer != of.number || (target != 0 && request.target != target)) return false;
    if (const auto found = locals_.find(key.requester); found != locals_.end())
      answer(found->second.actor, request.id, error);
    return true;
  });
}

void Engine::lost_any_thread(Peer number, const Status& why, bool found_here) {
  gate_->run([this, number, why, found_here] {
    if (PeerState* const of = peer(number); of != nullptr && !of->dead && !ended_) lose(*of, why, found_here);
  });
}

/// What is to be done from time to time; when to look again.
Clock::time_point Engine::look_around() {
  const auto now = Clock::now();
  auto next = now + kLookLater;
  if (ended_) return next;
  if (options_.heartbeats) next = std::min(next, look_for_silence());
  const bool some = incoming_->used() > incoming_->limit() / 16;
  notice_skipped();
  if (some) next = std::min(next, now + kLookSoon);
  // What the allocator keeps of a backlog that is gone.
  const std::uint64_t used = incoming_->used() + outgoing_->used();
  note_backlog(used);
  if (std::exchange(backlog_seen_, false)) {
    drained_ = false;
    last_backlog_ = now;
  } else if (used > kLargeBacklog / 8) {
    last_backlog_ = now;
  }
  if (!drained_ && now - last_backlog_ > kGoneFor) {
    drained_ = true;
    give_memory_back();
  }
  return next;
}

/// Sends heartbeats, and gives up who sends none; when to look again. A peer is expected to speak from its first word
/// on: until then the bootstrap watches over it.
Clock::time_point Engine::look_for_silence() {
  const auto now = Clock::now();
  if (!detector_) {
    const std::size_t capacity = peers_.empty() ? 0 : peers_.rbegin()->first.value + 1;
    detector_.emplace(capacity, *options_.heartbeats, now);
  }
  for (auto& [number, of] : peers_) {
    if (of->dead) continue;
    if (std::exchange(of->heard, false)) {
      if (!detector_->watched(number)) detector_->watch(number, now);
      detector_->heard(number, now);
    }
    if (std::exchange(of->spoken_to, false)) detector_->sent(number, now);
  }
  const auto findings = detector_->look(now);
  for (const Peer number : findings.heartbeat) send_control(*peer(number), {.kind = wire::Kind::heartbeat});
  if (options_.suspected) {
    for (const Peer number : findings.suspect) options_.suspected(number, true);
    for (const Peer number : findings.recovered) options_.suspected(number, false);
  }
  for (const Peer number : findings.dead) {
    const Status why{Code::peer_lost,
                     text("peer ", number.value, " has been silent for ", options_.heartbeats->dead.count(), " ms",
                          options_.heartbeats_setting.empty() ? "" : " (", options_.heartbeats_setting,
                          options_.heartbeats_setting.empty() ? "" : ")")};
    lose(*peer(number), why, true);
  }
  return std::min(findings.next, now + options_.heartbeats->heartbeat);
}

/// What it sends is against the protocol, so it is given up; soon, since its state may be in use up the stack.
void Engine::condemn(PeerState& of, const std::string& why) {
  if (std::exchange(of.condemned, true)) return;
  lost_any_thread(of.number, Status{Code::corrupt, text("peer ", of.number.value, " breaks the protocol: ", why)},
                  true);
}

void Engine::lose(PeerState& of, const Status& why, bool found_here) {
  of.dead = true;
  of.why = why;
  if (detector_) detector_->forget(of.number);
  of.batched = 0;
  of.batch.clear();
  of.given_back.clear();
  control_out_.cut(of.number);
  control_.transport().fence(of.number, Lane::control, why);
  auto cut = std::make_unique<BulkCut>(bulk_out_, bodies_, bulk_.transport(), of.number, why);
  if (bulk_.post(*cut)) cut.release();
  answer_outstanding(of, 0, to_caf(why));
  for (CallDone* const done : calls_.close_all(of.number)) done->answered(why, {});
  drop_blocked(of, to_caf(why));
  of.last_sender = nullptr;
  for (const auto& proxy : proxies_.get_all(of.node)) {
    if (proxy) proxies_.erase(of.node, proxy->id(), unreachable(why));
  }
  for (auto& [id, actor] : locals_) {
    std::erase(actor.watchers, of.number);
    const auto stream = actor.streams.find(of.number);
    if (stream == actor.streams.end()) continue;
    for (const auto& [sequence, held] : stream->second.held) {
      const wire::Header header = *wire::load(held.head);
      if ((header.flags & wire::kFree) == 0) of.intake->dealt_with(wire::charge_in(header.charge), /*on_lane=*/true);
    }
    actor.streams.erase(stream);
  }
  std::erase_if(lent_, [&](const auto& entry) { return entry.second.peer == of.number; });
  std::erase_if(parked_, [&](const auto& entry) { return entry.second.front()->to == of.number; });
  of.held = 0;
  of.ended.clear();
  of.edges.clear();
  if (found_here && options_.lost) options_.lost(of.number, why);
}

bool Engine::stop(Deadline deadline) {
  if (std::exchange(stopped_, true)) return true;
  // Tasks run in the order of posting: when this one has, all that was sent before stop() is on its way.
  const auto flushed = std::make_shared<std::promise<void>>();
  const bool posted_flush = gate_->run([this, flushed] {
    flush_batches();
    flushed->set_value();
  });
  bool clean = posted_flush && flushed->get_future().wait_until(deadline.at()) == std::future_status::ready;
  clean = clean && unfinished_.wait_for_none(deadline);
  const auto finished = std::make_shared<std::promise<void>>();
  const bool posted = gate_->run([this, finished] {
    finish();
    finished->set_value();
  });
  // The lane is never further away than one progress call; the deadline alone might leave it no time at all.
  const auto last = std::max(deadline.at(), Clock::now() + std::chrono::seconds(1));
  clean = posted && finished->get_future().wait_until(last) == std::future_status::ready && clean;
  gate_->close();
  return clean;
}

void Engine::finish() {
  ended_ = true;
  inline_->close();
  const Status why{Code::aborted, "this process has ended its connection to other processes"};
  for (CallDone* const done : calls_.close_all()) done->answered(why, {});
  const caf::error error = to_caf(why);
  for (auto& [number, of] : peers_) {
    answer_outstanding(*of, 0, error);
    drop_blocked(*of, error);
    of->last_sender = nullptr;
    for (const auto& proxy : proxies_.get_all(of->node)) {
      if (proxy) proxies_.erase(of->node, proxy->id(), error);
    }
  }
  forget_locals();
  lent_.clear();
  parked_.clear();
}

/// CAF's registry would keep alive who is known to peers, and must not: an actor that it alone holds when the actor
/// system ends is destroyed too late, without a scheduler.
void Engine::forget_locals() {
  for (const auto& [id, local] : locals_) {
    if (id != kDirectory) system_.registry().erase(id);
  }
  locals_.clear();
  last_source_ = 0;
}

void Engine::drop(const std::string& what) {
  counts_.dropped.add();
  if (options_.dropped) options_.dropped(what);
}

}  // namespace troupe::remote
