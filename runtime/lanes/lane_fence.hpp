#pragma once

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/lanes/lane_loop.hpp"

namespace troupe {

/// Waits until the lane's thread has finished its current work and all tasks that were posted before. False: the
/// deadline passed first. Returns at once if the lane has stopped. Must not be called on the lane's thread.
bool pass(Blocking& blocking, LaneLoop& lane, Deadline deadline);

}  // namespace troupe
