#pragma once

#include <cstdint>

#include "runtime/compute/thread_trial.hpp"
#include "runtime/model/graph.hpp"

namespace troupe {

/// Finds on how many threads, of `cores` at most, a CPU device computes steps of `graph` on `rows` samples fastest here
/// and now (run_thread_trial). The steps run on a thread of its own, and others that it starts, which have the calling
/// thread's CPUs. They take drawn samples, fewer than `rows` where a step would take long, and touch no memory of the
/// run. Takes as long as half a second of steps, after a step on each number of threads, and what making their programs
/// takes. Throws Error{unsupported} when the CPU device cannot run the graph.
ThreadTrial try_threads(const Graph& graph, std::uint32_t rows, std::uint32_t cores);

}  // namespace troupe
