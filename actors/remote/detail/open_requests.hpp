#pragma once

#include <algorithm>
#include <bit>
#include <caf/message_id.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "actors/remote/detail/known_actors.hpp"
#include "actors/remote/detail/lane_access.hpp"
#include "actors/remote/detail/proxy.hpp"
#include "actors/remote/detail/request_list.hpp"

namespace troupe::remote {

/// The requests of this process's actors to other processes' actors that have no answer yet. Every one ends: with the
/// answer, or here, when the receiver or its process has ended, or when nobody waits for the answer any more. Threads:
/// the control lane's.
class OpenRequests {
 public:
  std::size_t size() const noexcept { return open_.size(); }
  void open(KnownActor& requester, caf::message_id id, Proxy& target) {
    const auto [entry, fresh] = open_.try_emplace(key_of(requester.actor->id(), id));
    OpenRequest& request = entry->second;
    if (!fresh) leave_lists(request);  // it was passed on, and comes through this process again
    const bool timed = ++count_ % kTimed == 0;
    request = {.requester = requester.actor->id(),
               .id = id,
               .peer = target.peer().number,
               .passed_by = target.peer().number,
               .target = target.id(),
               .sent = timed ? Clock::now() : Clock::time_point{}};
    requester.requests.add(request);
    target.requests.add(request);
  }
  /// Removes and returns the request to which `answer` belongs; nothing if none is open.
  std::optional<OpenRequest> close(caf::actor_id requester, caf::message_id answer) {
    auto entry = open_.extract(key_of(requester, answer));
    if (entry.empty()) return {};
    leave_lists(entry.mapped());
    return entry.mapped();
  }
  /// Whether a request is open and waits for an actor of `peer`.
  bool is_at(caf::actor_id requester, caf::message_id id, Peer peer) const {
    const auto found = open_.find(key_of(requester, id));
    return found != open_.end() && found->second.peer == peer;
  }
  /// The peer at which an open request was has sent it to another actor.
  void pass(caf::actor_id requester, caf::message_id id, Proxy& target) {
    OpenRequest& request = open_.at(key_of(requester, id));
    RequestsTo::remove(request);
    request.passed_by = request.peer;
    request.peer = target.peer().number;
    request.target = target.id();
    target.requests.add(request);
  }
  /// Adds the time of an answer to the peer's counters, if that request was timed.
  static void note_time(PeerState& by, const OpenRequest& request) {
    if (request.sent == Clock::time_point{}) return;
    const auto took = static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - request.sent).count());
    auto& histogram = by.counts.answer_ns_log2;
    histogram[std::min<std::size_t>(std::bit_width(took | 1) - 1, histogram.size() - 1)].add();
  }
  /// Answers an open request with an error.
  void fail(KnownActors& actors, caf::actor_id requester, caf::message_id id, const caf::error& error) {
    if (const auto failed = close(requester, id)) tell(actors, *failed, error);
  }
  /// The same for all requests to an actor.
  void fail(KnownActors& actors, Proxy& target, const caf::error& error) {
    while (OpenRequest* const request = target.requests.first()) {
      const OpenRequest failed = *request;
      leave_lists(*request);
      open_.erase(key_of(failed.requester, failed.id));
      tell(actors, failed, error);
    }
  }
  /// The same for all actors of a peer. Also for requests that it has passed on, since they may not have left it.
  void fail(KnownActors& actors, Peer peer, const caf::error& error) {
    std::erase_if(open_, [&](const auto& entry) {
      const OpenRequest& request = entry.second;
      if (request.peer != peer && request.passed_by != peer) return false;
      leave_lists(request);
      tell(actors, request, error);
      return true;
    });
  }
  /// An actor of this process has ended.
  void forget(KnownActor& requester) {
    while (OpenRequest* const request = requester.requests.first()) {
      leave_lists(*request);
      open_.erase(key_of(request->requester, request->id));
    }
  }
  /// Forgets requests that have timed out at their actors. Called from time to time.
  void forget_expired(KnownActors& actors, const std::shared_ptr<LaneAccess>& lane_access, Clock::time_point now);
  template <class Visit>
  void each(Visit visit) const {
    for (const auto& [key, request] : open_) visit(request);
  }

 private:
  void forget(KnownActors& actors, caf::actor_id requester, const std::vector<caf::message_id>& expired);
  /// One in this number of requests is timed.
  static constexpr unsigned kTimed = 16;
  struct Key {
    caf::actor_id requester = 0;
    std::uint64_t request = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept { return key.requester * 0x9e3779b97f4a7c15 + key.request; }
  };
  static Key key_of(caf::actor_id requester, caf::message_id id) noexcept {
    return {requester, id.request_id().integer_value()};
  }
  static void leave_lists(const OpenRequest& request) noexcept {
    RequestsOf::remove(request);
    RequestsTo::remove(request);
  }
  static void tell(KnownActors& actors, const OpenRequest& request, const caf::error& error) {
    if (const KnownActor* const requester = actors.find_known(request.requester))
      answer(requester->actor, request.id, error);
  }

  std::unordered_map<Key, OpenRequest, KeyHash> open_;  // its elements do not move
  unsigned count_ = 0;
  // Expired requests are looked for when so many are open, or at this time.
  std::size_t look_from_ = 0;
  Clock::time_point look_again_;
};

}  // namespace troupe::remote
