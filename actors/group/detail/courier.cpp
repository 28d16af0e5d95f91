#include "actors/group/detail/courier.hpp"

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

/// After this time, a courier that has not confirmed its part counts as failed, even if it is not known to be lost.
constexpr std::chrono::seconds kPatience{60};

using Passed = caf::atom_constant<caf::atom("passed")>;

}  // namespace

Courier::Courier(caf::actor_config& config, std::shared_ptr<const Roster> roster)
    : event_based_actor(config), roster_(std::move(roster)) {}

void Courier::on_exit() {  // promises keep this actor alive
  const caf::error why = to_caf(Status{Code::aborted, "its process has left the group"});
  for (auto& [number, promise] : owed_) promise.deliver(why);
  owed_.clear();
}

caf::behavior Courier::make_behavior() {
  return {[this](const Broadcast& broadcast) { start(broadcast); },
          [this](Relay& message) -> caf::result<Passed> {
            relay(message);
            return caf::delegated<Passed>{};
          }};
}

void Courier::start(const Broadcast& broadcast) {
  std::vector<Stop> stops;
  std::map<Peer, std::size_t> known;
  for (const caf::actor& member : broadcast.members) {
    const auto peer = roster_->peer_of(member.node());
    if (!peer || *peer == roster_->self()) {  // sent directly: it is in this process, or in no process of this group
      caf::anon_send(member, broadcast.what);
      continue;
    }
    const auto [entry, fresh] = known.try_emplace(*peer, stops.size());
    if (fresh) stops.push_back({*peer, {}});
    stops[entry->second].actors.push_back(member.id());
  }
  if (stops.empty()) return;
  const std::uint64_t number = next_number_++;
  under_way_.insert(number);
  auto errand = std::make_shared<Errand>();
  errand->head = {.origin = roster_->self().value,
                  .number = number,
                  .done_below = *under_way_.begin(),
                  .fan_out = broadcast.fan_out,
                  .what = broadcast.what};
  errand->done = [this, number] { under_way_.erase(number); };
  pass_on(errand, stops);
}

void Courier::relay(Relay& message) {
  auto promise = make_response_promise();
  const auto refuse = [&](const std::string& why) { promise.deliver(to_caf(Status{Code::corrupt, why})); };
  if (message.peers.empty() || message.peers.size() != message.counts.size() || message.fan_out == 0 ||
      message.peers.front() != roster_->self().value) {
    return refuse("a broadcast that is not for this process");
  }
  const auto total = std::accumulate(message.counts.begin(), message.counts.end(), std::uint64_t{0});
  if (total != message.actors.size()) return refuse("a broadcast whose actors are not those of its processes");

  std::vector<Stop> stops;
  auto next = message.actors.begin();
  for (std::size_t i = 0; i < message.peers.size(); ++i) {
    if (message.peers[i] >= roster_->size()) return refuse("a broadcast to a process that is not in the group");
    stops.push_back({Peer{message.peers[i]}, {next, next + message.counts[i]}});
    next += message.counts[i];
  }
  auto& seen = seen_[message.origin];
  seen.erase(seen.begin(), seen.lower_bound(message.done_below));
  if (message.number >= message.done_below && seen.insert(message.number).second)
    deliver_here(stops.front().actors, message.what);
  const std::uint64_t owed = next_owed_++;
  owed_.emplace(owed, std::move(promise));
  auto errand = std::make_shared<Errand>();
  errand->head = std::move(message);
  errand->done = [this, owed] {
    auto entry = owed_.extract(owed);
    if (!entry.empty()) entry.mapped().deliver(Passed::value);
  };
  pass_on(errand, std::span(stops).subspan(1));
}

/// Divides the stops among at most fan_out couriers. Each gets a contiguous range, and passes on all but its first
/// stop.
void Courier::pass_on(const std::shared_ptr<Errand>& errand, std::span<const Stop> stops) {
  ++errand->open;  // keeps the errand open until all parts have been sent
  const std::size_t parts = std::min<std::size_t>(errand->head.fan_out, stops.size());
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t begin = stops.size() * i / parts;
    const std::size_t end = stops.size() * (i + 1) / parts;
    send_part(errand, {stops.begin() + begin, stops.begin() + end});
  }
  finished_part(*errand);
}

void Courier::send_part(const std::shared_ptr<Errand>& errand, std::vector<Stop> part) {
  const Peer first = part.front().peer;
  const caf::actor courier = roster_->courier(first);
  if (!courier) return;  // the group has ended
  Relay message = errand->head;
  message.peers.clear();
  message.counts.clear();
  message.actors.clear();
  for (const Stop& stop : part) {
    message.peers.push_back(stop.peer.value);
    message.counts.push_back(static_cast<std::uint32_t>(stop.actors.size()));
    message.actors.insert(message.actors.end(), stop.actors.begin(), stop.actors.end());
  }
  ++errand->open;
  request(courier, kPatience, std::move(message))
      .then([this, errand](Passed) { finished_part(*errand); },
            [this, errand, first, part = std::move(part)](const caf::error& error) {
              const Status why = from_caf(error);
              roster_->drop(text("a broadcast did not reach ", part.front().actors.size(), " actors at ",
                                 roster_->describe(first), ": ", why.text()));
              pass_on(errand, std::span(part).subspan(1));
              finished_part(*errand);
            });
}

void Courier::finished_part(Errand& errand) {
  if (--errand.open == 0) errand.done();
}

void Courier::deliver_here(const std::vector<std::uint64_t>& actors, const caf::message& what) {
  for (const std::uint64_t id : actors) {
    if (const auto actor = system().registry().get<caf::strong_actor_ptr>(id)) {
      caf::anon_send(caf::actor_cast<caf::actor>(actor), what);
    }
  }
}

}  // namespace troupe::group
