#pragma once

#include <optional>

#include "actors/remote/detail/context.hpp"
#include "actors/remote/detail/frame_sender.hpp"
#include "runtime/membership/failure_detector.hpp"

namespace troupe::remote {

/// Sends heartbeats to peers to which nothing else was sent, and declares silent peers lost. A peer is watched after
/// its first message; until then the bootstrap watches it. Threads: the control lane's.
class SilenceWatch {
 public:
  SilenceWatch(Context& context, FrameSender& frames) : context_(context), frames_(frames) {}
  /// Returns when to call it again; max(): never, heartbeats are off.
  Clock::time_point look(Clock::time_point now);
  void forget(Peer peer) {
    if (detector_) detector_->forget(peer);
  }

 private:
  Context& context_;
  FrameSender& frames_;
  std::optional<FailureDetector> detector_;  // made at the first call of look()
};

}  // namespace troupe::remote
