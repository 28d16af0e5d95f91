#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "apps/session/session.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/ids.hpp"

namespace troupe {

/// Notes on ranks that have fallen silent and are not given up yet, at most one every 10 s of each. Threads: one.
class SilenceNotes {
 public:
  /// `hosts` by rank; `listener` outlives it, or is null.
  SilenceNotes(std::vector<std::string> hosts, std::chrono::milliseconds suspect, SessionListener* listener);
  /// `suspected`: it has been silent for that long; else it has spoken again, which is no news.
  void tell(Peer peer, bool suspected, Clock::time_point now);

 private:
  const std::vector<std::string> hosts_;
  const std::chrono::milliseconds suspect_;
  SessionListener* const listener_;
  std::map<Peer, Clock::time_point> told_;  // the last note on each
};

}  // namespace troupe
