#pragma once

#include <deque>
#include <optional>

#include "actors/device_actor.hpp"

namespace troupe::detail {

/// When a device takes digests of its rank's weights, for the ranks to be compared.
class DeviceDigests {
 public:
  /// `step` is enqueued: whether digests follow it on the stream, so that they are done when the step is told to be.
  bool enqueue(const DeviceParts& parts, Step step);
  /// What to tell of a committed step; nothing: it has no digests.
  std::optional<RankDigest> take(const DeviceParts& parts, Step step);

 private:
  bool due_ = false;        // at the next step after which all weights are alike
  std::deque<Step> steps_;  // with digests, not taken
};

}  // namespace troupe::detail
