#pragma once

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/lanes/lane_loop.hpp"

namespace troupe {

/// Waits until the lane's thread has done whatever it was in the middle of, and all that was posted to it before.
/// False: not by the deadline. At once, where the lane has stopped. Not on the lane's thread.
bool pass(Blocking& blocking, LaneLoop& lane, Deadline deadline);

}  // namespace troupe
