#include "actors/group/detail/broadcaster.hpp"

#include <algorithm>
#include <caf/actor_registry.hpp>
#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <chrono>
#include <numeric>
#include <utility>

#include "actors/caf_error.hpp"

namespace troupe::group {
namespace {

/// After this time, a broadcaster that has not confirmed its part counts as failed, even if it is not known to be lost.
constexpr std::chrono::seconds kPatience{60};

using Passed = caf::atom_constant<caf::atom("passed")>;

}  // namespace

Broadcaster::Broadcaster(caf::actor_config& config, std::shared_ptr<const PeerTable> peer_table)
    : event_based_actor(config), peer_table_(std::move(peer_table)) {}

void Broadcaster::on_exit() {  // promises keep this actor alive
  const caf::error why = to_caf(Status{Code::aborted, "its process has left the group"});
  for (auto& [number, promise] : owed_) promise.deliver(why);
  owed_.clear();
}

caf::behavior Broadcaster::make_behavior() {
  return {[this](const Broadcast& broadcast) { start(broadcast); },
          [this](Relay& message) -> caf::result<Passed> {
            relay(message);
            return caf::delegated<Passed>{};
          }};
}

void Broadcaster::start(const Broadcast& broadcast) {
  std::vector<Target> targets;
  std::map<Peer, std::size_t> known;
  for (const caf::actor& member : broadcast.members) {
    const auto peer = peer_table_->peer_of(member.node());
    if (!peer ||
        *peer == peer_table_->self()) {  // sent directly: it is in this process, or in no process of this group
      caf::anon_send(member, broadcast.what);
      continue;
    }
    const auto [entry, fresh] = known.try_emplace(*peer, targets.size());
    if (fresh) targets.push_back({*peer, {}});
    targets[entry->second].actors.push_back(member.id());
  }
  if (targets.empty()) return;
  const std::uint64_t number = next_number_++;
  in_progress_.insert(number);
  auto pending = std::make_shared<PendingBroadcast>();
  pending->head = {.origin = peer_table_->self().value,
                   .number = number,
                   .done_below = *in_progress_.begin(),
                   .fan_out = broadcast.fan_out,
                   .what = broadcast.what};
  pending->done = [this, number] { in_progress_.erase(number); };
  pass_on(pending, targets);
}

void Broadcaster::relay(Relay& message) {
  auto promise = make_response_promise();
  const auto refuse = [&](const std::string& why) { promise.deliver(to_caf(Status{Code::corrupt, why})); };
  if (message.peers.empty() || message.peers.size() != message.counts.size() || message.fan_out == 0 ||
      message.peers.front() != peer_table_->self().value) {
    return refuse("a broadcast that is not for this process");
  }
  const auto total = std::accumulate(message.counts.begin(), message.counts.end(), std::uint64_t{0});
  if (total != message.actors.size()) return refuse("a broadcast whose actors are not those of its processes");

  std::vector<Target> targets;
  auto next = message.actors.begin();
  for (std::size_t i = 0; i < message.peers.size(); ++i) {
    if (message.peers[i] >= peer_table_->size()) return refuse("a broadcast to a process that is not in the group");
    targets.push_back({Peer{message.peers[i]}, {next, next + message.counts[i]}});
    next += message.counts[i];
  }
  auto& seen = seen_[message.origin];
  seen.erase(seen.begin(), seen.lower_bound(message.done_below));
  if (message.number >= message.done_below && seen.insert(message.number).second)
    deliver_here(targets.front().actors, message.what);
  const std::uint64_t owed = next_owed_++;
  owed_.emplace(owed, std::move(promise));
  auto pending = std::make_shared<PendingBroadcast>();
  pending->head = std::move(message);
  pending->done = [this, owed] {
    auto entry = owed_.extract(owed);
    if (!entry.empty()) entry.mapped().deliver(Passed::value);
  };
  pass_on(pending, std::span(targets).subspan(1));
}

/// Divides the targets among at most fan_out broadcasters. Each gets a contiguous range, and passes on all but its
/// first target.
void Broadcaster::pass_on(const std::shared_ptr<PendingBroadcast>& pending, std::span<const Target> targets) {
  ++pending->open;  // keeps it open until all parts have been sent
  const std::size_t parts = std::min<std::size_t>(pending->head.fan_out, targets.size());
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t begin = targets.size() * i / parts;
    const std::size_t end = targets.size() * (i + 1) / parts;
    send_part(pending, {targets.begin() + begin, targets.begin() + end});
  }
  finished_part(*pending);
}

void Broadcaster::send_part(const std::shared_ptr<PendingBroadcast>& pending, std::vector<Target> part) {
  const Peer first = part.front().peer;
  const caf::actor broadcaster = peer_table_->broadcaster(first);
  if (!broadcaster) return;  // the group has ended
  Relay message = pending->head;
  message.peers.clear();
  message.counts.clear();
  message.actors.clear();
  for (const Target& target : part) {
    message.peers.push_back(target.peer.value);
    message.counts.push_back(static_cast<std::uint32_t>(target.actors.size()));
    message.actors.insert(message.actors.end(), target.actors.begin(), target.actors.end());
  }
  ++pending->open;
  request(broadcaster, kPatience, std::move(message))
      .then([this, pending](Passed) { finished_part(*pending); },
            [this, pending, first, part = std::move(part)](const caf::error& error) {
              const Status why = from_caf(error);
              peer_table_->drop(text("a broadcast did not reach ", part.front().actors.size(), " actors at ",
                                     peer_table_->describe(first), ": ", why.text()));
              pass_on(pending, std::span(part).subspan(1));
              finished_part(*pending);
            });
}

void Broadcaster::finished_part(PendingBroadcast& pending) {
  if (--pending.open == 0) pending.done();
}

void Broadcaster::deliver_here(const std::vector<std::uint64_t>& actors, const caf::message& what) {
  for (const std::uint64_t id : actors) {
    if (const auto actor = system().registry().get<caf::strong_actor_ptr>(id)) {
      caf::anon_send(caf::actor_cast<caf::actor>(actor), what);
    }
  }
}

}  // namespace troupe::group
