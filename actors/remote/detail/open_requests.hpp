#pragma once

#include <algorithm>
#include <bit>
#include <caf/message_id.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "actors/remote/detail/known_actors.hpp"

namespace troupe::remote {

/// The requests of this process's actors to other processes' actors that have no answer yet. Every one ends: with the
/// answer, or here, when the receiver or its process has ended. Threads: the control lane's.
class OpenRequests {
 public:
  struct Key {
    caf::actor_id requester = 0;
    std::uint64_t request = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Request {
    caf::message_id id;
    Peer peer;
    caf::actor_id target = 0;
    Clock::time_point sent;  // for requests that are timed
  };

  static Key key_of(caf::actor_id requester, caf::message_id id) noexcept {
    return {requester, id.request_id().integer_value()};
  }
  std::size_t size() const noexcept { return open_.size(); }
  void open(caf::actor_id requester, caf::message_id id, Peer peer, caf::actor_id target) {
    const bool timed = ++count_ % kTimed == 0;
    open_.insert_or_assign(key_of(requester, id),
                           Request{id, peer, target, timed ? Clock::now() : Clock::time_point{}});
  }
  /// Removes and returns the request to which `answer` belongs; nothing if none is open.
  std::optional<Request> close(caf::actor_id requester, caf::message_id answer) {
    auto request = open_.extract(key_of(requester, answer));
    if (request.empty()) return {};
    return std::move(request.mapped());
  }
  /// Adds the time of an answer to the peer's counters, if that request was timed.
  static void note_time(PeerState& by, const Request& request) {
    if (request.sent == Clock::time_point{}) return;
    const auto took = static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - request.sent).count());
    auto& histogram = by.counts.answer_ns_log2;
    histogram[std::min<std::size_t>(std::bit_width(took | 1) - 1, histogram.size() - 1)].add();
  }
  /// Answers all requests to `target` of that peer with an error; `target` 0: to all its actors.
  void fail(KnownActors& actors, Peer peer, caf::actor_id target, const caf::error& error) {
    std::erase_if(open_, [&](const auto& entry) {
      const auto& [key, request] = entry;
      if (request.peer != peer || (target != 0 && request.target != target)) return false;
      if (const KnownActor* const requester = actors.find_known(key.requester))
        answer(requester->actor, request.id, error);
      return true;
    });
  }
  /// An actor of this process has ended.
  void forget(caf::actor_id requester) {
    std::erase_if(open_, [requester](const auto& entry) { return entry.first.requester == requester; });
  }
  template <class Visit>
  void each(Visit visit) const {
    for (const auto& [key, request] : open_) visit(key.requester, request);
  }

 private:
  /// One in this number of requests is timed.
  static constexpr unsigned kTimed = 16;
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept { return key.requester * 0x9e3779b97f4a7c15 + key.request; }
  };
  std::unordered_map<Key, Request, KeyHash> open_;
  unsigned count_ = 0;
};

}  // namespace troupe::remote
