#include "runtime/membership/failure_detector.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"

namespace troupe {

FailureDetectorOptions FailureDetectorOptions::with_dead(std::chrono::milliseconds dead) noexcept {
  FailureDetectorOptions options;
  options.dead = dead;
  options.suspect = std::max(std::min(options.suspect, dead / 3), dead / 10);
  options.heartbeat = std::min(options.heartbeat, dead / 9);
  return options;
}

FailureDetector::FailureDetector(std::size_t capacity, FailureDetectorOptions options, Clock::time_point now)
    : options_(options),
      last_look_(now),
      peers_(capacity),
      heartbeat_(capacity),
      suspect_(capacity),
      recovered_(capacity),
      dead_(capacity) {
  TROUPE_CHECK(options.heartbeat.count() > 0 && options.heartbeat < options.suspect && options.suspect < options.dead,
               Code::invalid, "a failure detector with heartbeats every ", options.heartbeat.count(),
               " ms, suspicion after ", options.suspect.count(), " ms and death after ", options.dead.count(),
               " ms: each must be longer than the one before; raise faults.dead_ms");
}

/// Attended time at `now`, which is after the last look().
Clock::duration FailureDetector::attended_at(Clock::time_point now) const noexcept {
  return attended_ +
         std::clamp<Clock::duration>(now - last_look_, Clock::duration::zero(), Clock::duration{options_.heartbeat});
}

void FailureDetector::watch(Peer peer, Clock::time_point now) noexcept {
  peers_[peer.value] = {State::alive, attended_at(now), now};
}

void FailureDetector::forget(Peer peer) noexcept { peers_[peer.value].state = State::unwatched; }

void FailureDetector::heard(Peer peer, Clock::time_point now) noexcept { peers_[peer.value].heard = attended_at(now); }

void FailureDetector::sent(Peer peer, Clock::time_point now) noexcept { peers_[peer.value].sent = now; }

FailureDetector::Findings FailureDetector::look(Clock::time_point now) noexcept {
  attended_ = attended_at(now);
  last_look_ = std::max(last_look_, now);
  for (List* list : {&heartbeat_, &suspect_, &recovered_, &dead_}) list->clear();
  Clock::duration wait{options_.heartbeat};  // a longer wait would not count as attended
  bool any = false;
  for (std::uint32_t i = 0; i < peers_.size(); ++i) {
    Watched& watched = peers_[i];
    if (watched.state == State::unwatched) continue;
    wait = std::min(wait, judge({i}, watched));
    if (watched.state == State::unwatched) continue;
    any = true;
    if (now - watched.sent >= options_.heartbeat) {
      heartbeat_.add({i});
      watched.sent = now;
    }
    wait = std::min(wait, options_.heartbeat - (now - watched.sent));
  }
  return {heartbeat_.view(), suspect_.view(), recovered_.view(), dead_.view(),
          any ? now + wait : Clock::time_point::max()};
}

/// Decides about a peer by its silence; returns for how long at least the decision stays the same.
Clock::duration FailureDetector::judge(Peer peer, Watched& watched) noexcept {
  const Clock::duration silence = attended_ - watched.heard;
  if (silence >= options_.dead) {
    watched.state = State::unwatched;
    dead_.add(peer);
    return options_.dead;
  }
  if (silence >= options_.suspect) {
    if (watched.state == State::alive) suspect_.add(peer);
    watched.state = State::suspect;
    // Half an interval, so that a look() that is late by less than the other half still counts in full.
    return std::min<Clock::duration>(options_.dead - silence, options_.heartbeat / 2);
  }
  if (watched.state == State::suspect) recovered_.add(peer);
  watched.state = State::alive;
  return options_.suspect - silence;
}

}  // namespace troupe
