#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "apps/session/session.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/ids.hpp"

namespace troupe {

/// Notes on ranks that are silent but not lost yet, for each rank at most one every 10 s. Threads: one.
class SilenceNotes {
 public:
  /// `hosts` by rank; `listener` outlives this object, or is null.
  SilenceNotes(std::vector<std::string> hosts, std::chrono::milliseconds suspect, SessionListener* listener);
  /// `suspected`: the peer has been silent for `suspect`; otherwise it has spoken again, which gives no note.
  void add(Peer peer, bool suspected, Clock::time_point now);

 private:
  const std::vector<std::string> hosts_;
  const std::chrono::milliseconds suspect_;
  SessionListener* const listener_;
  std::map<Peer, Clock::time_point> noted_at_;  // time of the last note on each
};

}  // namespace troupe
