#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/clock.hpp"
#include "runtime/base/ids.hpp"

namespace troupe {

/// The limits of silence. 0 < heartbeat < suspect < dead.
struct FailureDetectorOptions {
  std::chrono::milliseconds heartbeat{100};  // interval of heartbeats to a peer that is sent nothing else
  std::chrono::milliseconds suspect{300};
  std::chrono::milliseconds dead{1000};

  /// Heartbeats every 100 ms, or a ninth of `dead` if that is less. Suspicion after a tenth of `dead`, but at least 300
  /// ms and at most a third of `dead`: with 10 s, on a busy machine, 300 ms of silence mean nothing.
  static FailureDetectorOptions with_dead(std::chrono::milliseconds dead) noexcept;
};

/// Decides by silence which peers are alive (actors/remote/silence_watch.cpp asks it; the end of a process is noticed
/// in transports/bootstrap/detail/death_watch.cpp), as a pure state machine: each call gets the time and returns what
/// to do.
///
/// Silence is counted in *attended* time: of the time between two calls of look() at most one heartbeat interval
/// counts. If this process was stopped, or got no core, its peers may have sent messages: the rest is not counted.
/// Costs: heard() and sent() O(1), look() O(capacity); nothing is allocated after construction.
/// Threads: one at a time, normally the control lane's.
class FailureDetector {
 public:
  /// What to do about which peers. The lists belong to the detector and are valid until the next look().
  struct Findings {
    std::span<const Peer> heartbeat;  // send these a heartbeat now; they already count as sent to
    std::span<const Peer> suspect;    // silent for options.suspect
    std::span<const Peer> recovered;  // were suspect and have been heard again
    std::span<const Peer> dead;       // silent for options.dead; final: they are no longer watched
    Clock::time_point next;           // call look() again by then, and after watch(); max(): no peer is watched
  };

  /// For peers 0 .. capacity-1; none is watched yet. Throws Error{invalid} if the options are not in ascending order.
  FailureDetector(std::size_t capacity, FailureDetectorOptions options, Clock::time_point now);

  /// From now on messages of `peer` are expected, and it is sent heartbeats. Restarts a peer that is watched already.
  void watch(Peer peer, Clock::time_point now) noexcept;
  /// Call this when `peer` left, or was found dead in another way.
  void forget(Peer peer) noexcept;
  /// Call this when anything arrived from `peer`. Ignored for peers that are not watched: a dead peer stays dead.
  void heard(Peer peer, Clock::time_point now) noexcept;
  /// Call this when anything was sent to `peer`.
  void sent(Peer peer, Clock::time_point now) noexcept;
  /// What to do at `now`. Handle arrived messages first: one of them may be from a peer that seems silent.
  Findings look(Clock::time_point now) noexcept;

  bool watched(Peer peer) const noexcept { return peers_[peer.value].state != State::unwatched; }
  bool suspected(Peer peer) const noexcept { return peers_[peer.value].state == State::suspect; }
  const FailureDetectorOptions& options() const noexcept { return options_; }

 private:
  enum class State : std::uint8_t { unwatched, alive, suspect };
  struct Watched {
    State state = State::unwatched;
    Clock::duration heard{};  // attended time at its last message
    Clock::time_point sent;   // real time of the last message to it
  };
  /// A list of peers with a fixed capacity.
  class List {
   public:
    explicit List(std::size_t capacity) : peers_(capacity) {}
    void clear() noexcept { size_ = 0; }
    void add(Peer peer) noexcept { peers_[size_++] = peer; }
    std::span<const Peer> view() const noexcept { return {peers_.data(), size_}; }

   private:
    std::vector<Peer> peers_;
    std::size_t size_ = 0;
  };

  Clock::duration attended_at(Clock::time_point now) const noexcept;
  Clock::duration judge(Peer peer, Watched& watched) noexcept;

  const FailureDetectorOptions options_;
  Clock::time_point last_look_;
  Clock::duration attended_{};  // up to last_look_
  std::vector<Watched> peers_;
  List heartbeat_;
  List suspect_;
  List recovered_;
  List dead_;
};

}  // namespace troupe
