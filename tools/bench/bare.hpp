#pragma once

#include "apps/session/session.hpp"
#include "runtime/base/blocking.hpp"
#include "tools/bench/step_clock.hpp"

namespace troupe::bench {

/// Trains as one rank of a job on this machine without any actor: the same plan, arenas, device, replica and exchange
/// as a session's, called from a loop on the calling thread, which also fills the batches. For `seconds`, then ends
/// with the others. What a session takes longer is the price of its actors. The rate is a constant one, which costs as
/// much as any. Throws Error{unsupported} for anything but sync on one node with equal batches and without evaluations.
StepClock run_bare(Blocking& blocking, const SessionOptions& options, double seconds);

}  // namespace troupe::bench
