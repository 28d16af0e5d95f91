#pragma once

#include <deque>
#include <optional>

#include "actors/device_actor.hpp"

namespace troupe::detail {

/// Decides when a device computes digests of its rank's weights, which are compared between ranks.
class DeviceDigests {
 public:
  /// Called when `step` is enqueued. Returns whether digests follow it on the stream, before the step's committed
  /// point.
  bool enqueue(const DeviceParts& parts, Step step);
  /// The digests of a committed step; nothing: it has none.
  std::optional<RankDigest> take(const DeviceParts& parts, Step step);

 private:
  bool due_ = false;        // compute digests after the next step that leaves the same weights at all ranks
  std::deque<Step> steps_;  // steps with digests that take() has not returned
};

}  // namespace troupe::detail
