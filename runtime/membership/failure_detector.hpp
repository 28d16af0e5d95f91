#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/clock.hpp"
#include "runtime/base/ids.hpp"

namespace troupe {

/// When silence means something. 0 < heartbeat < suspect < dead.
struct FailureDetectorOptions {
  std::chrono::milliseconds heartbeat{100};  // without other traffic a peer is sent a heartbeat this often
  std::chrono::milliseconds suspect{300};
  std::chrono::milliseconds dead{1000};

  /// Heartbeats every 100 ms, or a ninth of `dead` if that is less. Suspicion after 300 ms, or a third of `dead` if
  /// that is less, or a tenth of it if that is more: who waits 10 s on a busy machine need not hear of 300 ms.
  static FailureDetectorOptions with_dead(std::chrono::milliseconds dead) noexcept;
};

/// Decides by silence who is alive, as a pure state machine: the time comes in with every call, what to do goes out.
///
/// Silence is counted in *attended* time: of the time between two looks at most one heartbeat interval counts. When
/// this process was stopped, or found no core, its peers may well have spoken and are not blamed for the rest.
/// Costs: heard() and sent() O(1), look() O(capacity); nothing is allocated after construction.
/// Threads: one at a time, normally the control lane's.
class FailureDetector {
 public:
  /// Whom to tell what. The lists are the detector's own, valid until the next look.
  struct Findings {
    std::span<const Peer> heartbeat;  // send these a heartbeat now; they count as sent to
    std::span<const Peer> suspect;    // silent for options.suspect
    std::span<const Peer> recovered;  // were suspect and have spoken
    std::span<const Peer> dead;       // silent for options.dead; final, they are watched no more
    Clock::time_point next;           // look again by then, and after watch(); max(): nobody is watched
  };

  /// For peers 0 .. capacity-1, none watched yet. Throws Error{invalid} when the options are not in order.
  FailureDetector(std::size_t capacity, FailureDetectorOptions options, Clock::time_point now);

  /// From now on `peer` is expected to speak and is kept informed. Starts afresh when it is watched already.
  void watch(Peer peer, Clock::time_point now) noexcept;
  /// `peer` left, or was found dead by other means.
  void forget(Peer peer) noexcept;
  /// Anything arrived from `peer`. From peers that are not watched it means nothing: the dead stay dead.
  void heard(Peer peer, Clock::time_point now) noexcept;
  /// Anything was sent to `peer`.
  void sent(Peer peer, Clock::time_point now) noexcept;
  /// What is to be done at `now`. First take what has arrived: it may be the sign of life that is missed.
  Findings look(Clock::time_point now) noexcept;

  bool watched(Peer peer) const noexcept { return peers_[peer.value].state != State::unwatched; }
  bool suspected(Peer peer) const noexcept { return peers_[peer.value].state == State::suspect; }
  const FailureDetectorOptions& options() const noexcept { return options_; }

 private:
  enum class State : std::uint8_t { unwatched, alive, suspect };
  struct Watched {
    State state = State::unwatched;
    Clock::duration heard{};  // attended time of its last word
    Clock::time_point sent;   // real time of ours
  };
  /// Peers, at most as many as there is room for.
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
  Clock::duration attended_{};  // until last_look_
  std::vector<Watched> peers_;
  List heartbeat_;
  List suspect_;
  List recovered_;
  List dead_;
};

}  // namespace troupe
