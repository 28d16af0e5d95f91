#include "actors/remote/detail/engine.hpp"

#include <algorithm>
#include <caf/actor_system.hpp>
#include <caf/exit_reason.hpp>
#include <caf/send.hpp>
#include <future>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/remote/detail/directory.hpp"
#include "actors/remote/detail/window_watcher.hpp"

namespace troupe::remote {
namespace {

/// How often it looks around: while actors skip messages, while much is in mailboxes, and otherwise.
constexpr auto kLookAgain = std::chrono::milliseconds(2);
constexpr auto kLookSoon = std::chrono::milliseconds(20);
constexpr auto kLookLater = std::chrono::milliseconds(200);

std::uint64_t landing_bytes(const Context& context) {
  const std::uint64_t set = context.options.landing_bytes;
  return set != 0 ? set : 2 * context.outgoing->limit();
}

/// At least a few pieces.
std::uint64_t sending_bytes(const Context& context) {
  return std::max(context.options.sending_bytes, 4 * wire::kPieceBytes);
}

Status ended() { return {Code::aborted, "this process has ended its connection to other processes"}; }

}  // namespace

/// Disconnects a peer on the bulk lane; deletes itself.
class Engine::BulkCut final : public LaneTask {
 public:
  BulkCut(Engine& engine, Peer peer, Status why) : engine_(engine), peer_(peer), why_(std::move(why)) {}
  void run() noexcept override {
    const std::unique_ptr<BulkCut> self(this);
    engine_.frames_.cut_bulk(peer_);
    engine_.context_.transport.fence(peer_, Lane::bulk, why_);
    engine_.arrivals_.forget_pieces(peer_);
  }

 private:
  Engine& engine_;
  const Peer peer_;
  const Status why_;
};

Engine::Engine(caf::actor_system& system, AddressSpace& space, LaneLoop& control, LaneLoop& bulk, Peer self,
               RemoteOptions options)
    : context_(system, space, control, bulk, self, std::move(options)),
      landing_pool_(std::make_shared<SlabPool>(space, self, context_.options.first_arena, landing_bytes(context_))),
      sending_pool_(std::make_shared<SlabPool>(space, self, context_.options.first_arena + SlabPool::kArenas,
                                               sending_bytes(context_))),
      inline_(std::make_shared<InlineUnit>(system, context_.lane_access, context_.options.inline_limit,
                                           context_.options.slow)),
      frames_(context_, sending_pool_, sending_bytes(context_)),
      actors_(context_, [this](KnownActor&& actor, caf::actor_id id,
                               const caf::error& why) { inbound_.actor_ended(std::move(actor), id, why); }),
      staging_(context_, frames_),
      loans_(context_, frames_, staging_),
      backlog_(context_, outbound_, memory_, frames_.unfinished()),
      outbound_(context_, frames_, staging_, actors_, requests_, loans_, backlog_, proxies_),
      proxies_(context_, frames_, outbound_),
      credits_(context_, frames_, actors_),
      calls_(context_, frames_, actors_, *inline_),
      inbound_(context_, frames_, actors_, requests_, loans_, proxies_, backlog_, credits_, calls_, *inline_, memory_),
      arrivals_(context_, inbound_, *inline_, landing_pool_, sending_pool_),
      silence_(context_, frames_),
      directory_(spawn_directory(system)),
      window_watcher_(spawn_window_watcher(system)) {
  context_.lose = [this](PeerState& of, const Status& why) {
    lose(of, why);
    if (context_.options.lost) context_.options.lost(of.number, why);
  };
  actors_.add_directory(caf::actor_cast<caf::strong_actor_ptr>(directory_));
  control.transport().receive(Channel::actors, arrivals_);
  control.after_round([this] { return end_round(); });
  control.also_drives(bulk);
  control.on_time([this] { return look_around(); });
  bulk.after_round([this] { return frames_.pump_bulk(); });
}

/// The order matters: actors run first, so that what they send can still leave in this round; batches are closed after
/// everything that may add to them.
bool Engine::end_round() {
  bool did = inline_->run();
  did |= loans_.flush();
  did |= inbound_.flush();
  did |= frames_.flush();
  return frames_.pump_control() || did;
}

/// The lane access is closed first: after that no other thread gets in, and the lanes have already ended
/// (RemoteActors).
Engine::~Engine() {
  context_.lane_access->close();
  inline_->close();
  calls_.fail_all(ended());
  proxies_.clear();
  actors_.forget_all();
  caf::anon_send_exit(directory_, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(window_watcher_, caf::exit_reason::user_shutdown);
}

void Engine::add_peer(Peer number, const caf::node_id& node, std::uint64_t offered) {
  PeerState& added = context_.add_peer(number, node);
  credits_.add_peer(added);
  added.backlog.offered = std::max<std::uint64_t>(offered / wire::kChargeBytes, 1);
  for (auto& [other, of] : context_.peers) of->backlog.share = of->backlog.offered / context_.peers.size();
}

void Engine::bound(Proxy& proxy, const Window& window, WhenFull when_full) {
  proxy.make_send_window().set(window, when_full);
  // The actor's process then reports handled messages sooner.
  context_.lane_access->run([this, window, kept = caf::strong_actor_ptr(proxy.ctrl())] {
    auto& of = static_cast<Proxy&>(*kept->get());
    if (of.peer().dead || context_.ended) return;
    frames_.send(of.peer(), {.kind = wire::Kind::window,
                             .message_id = window.messages,
                             .source = window.bytes / wire::kChargeBytes + 1,
                             .target = of.id()});
  });
}

void Engine::lost(Peer number, const Status& why) {
  context_.lane_access->run([this, number, why] {
    if (PeerState* const of = context_.peer(number); of != nullptr && !of->dead && !context_.ended) lose(*of, why);
  });
}

/// Does the periodic work; returns when to call it again.
Clock::time_point Engine::look_around() {
  const auto now = Clock::now();
  if (context_.ended) return now + kLookLater;
  const bool some = context_.incoming->used() > context_.incoming->limit() / 16;
  // An actor that skips messages gets its sender's next window only when they are found: more are about to come.
  const bool skipping = credits_.look_for_skipped();
  requests_.forget_expired(actors_, context_.lane_access, now);
  memory_.look(context_.incoming->used() + context_.outgoing->used(), now);
  return std::min(silence_.look(now), now + (skipping ? kLookAgain : some ? kLookSoon : kLookLater));
}

/// Answers everything that waits for the peer. It is marked as dead first, so that actors that react to these answers
/// find it dead. Its proxies end only after all requests to it are answered, since an actor that gets DOWN may rely on
/// that.
void Engine::lose(PeerState& of, const Status& why) {
  of.dead = true;
  of.why = why;
  silence_.forget(of.number);
  of.given_back.clear();
  frames_.cut_control(of);
  context_.transport.fence(of.number, Lane::control, why);
  auto cut = std::make_unique<BulkCut>(*this, of.number, why);
  if (context_.bulk.post(*cut)) cut.release();
  requests_.fail(actors_, of.number, to_caf(why));
  calls_.fail_all(of.number, why);
  backlog_.drop(of, to_caf(why));
  proxies_.end_all(of, Proxies::unreachable(why));
  inbound_.forget(of);
  loans_.forget(of.number);
  outbound_.forget_parked(of.number);
  staging_.forget(of.number);
}

bool Engine::stop(Deadline deadline) {
  if (std::exchange(stopped_, true)) return true;
  // Tasks run in the order of posting: when this one has run, everything that was sent before stop() has been passed to
  // the lanes.
  const auto on_lane = [this](auto&& work, Clock::time_point until) {
    const auto done = std::make_shared<std::promise<void>>();
    const bool posted = context_.lane_access->run([work, done] {
      work();
      done->set_value();
    });
    return posted && done->get_future().wait_until(until) == std::future_status::ready;
  };
  bool clean = on_lane([this] { frames_.flush(); }, deadline.at());
  clean = clean && frames_.unfinished().wait_for_none(deadline);
  // The lane runs this task within one progress call; the deadline alone might leave no time for it.
  clean = on_lane([this] { finish(); }, std::max(deadline.at(), Clock::now() + std::chrono::seconds(1))) && clean;
  context_.lane_access->close();
  return clean;
}

void Engine::finish() {
  context_.ended = true;
  inline_->close();
  calls_.fail_all(ended());
  const caf::error why = to_caf(ended());
  for (auto& [number, of] : context_.peers) {
    requests_.fail(actors_, number, why);
    backlog_.drop(*of, why);
    of->order.last_sender = nullptr;
    proxies_.end_all(*of, why);
  }
  actors_.forget_all();
  loans_.forget_all();
  outbound_.forget_all_parked();
  staging_.forget_all();
}

}  // namespace troupe::remote
