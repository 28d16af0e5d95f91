#pragma once

#include <optional>

#include "actors/remote/detail/context.hpp"
#include "actors/remote/detail/frame_sender.hpp"
#include "runtime/membership/failure_detector.hpp"

namespace troupe::remote {

/// Sends heartbeats to peers that were not spoken to, and gives up those that are silent. A peer is expected to speak
/// from its first word on: until then the bootstrap watches over it. Threads: the control lane's.
class SilenceWatch {
 public:
  SilenceWatch(Context& context, FrameSender& frames) : context_(context), frames_(frames) {}
  /// When to look again; max(): never, heartbeats are off.
  Clock::time_point look(Clock::time_point now);
  void forget(Peer peer) {
    if (detector_) detector_->forget(peer);
  }

 private:
  Context& context_;
  FrameSender& frames_;
  std::optional<FailureDetector> detector_;  // made with the first look
};

}  // namespace troupe::remote
