#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/planning/topology.hpp"
#include "runtime/topology/measurements.hpp"
#include "tools/rtrun/signals.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace troupe::rttopo {

/// The parameters of all measurements.
struct Measuring {
  Blocking& blocking;
  std::uint32_t repeats = 3;
  Clock::duration span{};  // of each repeat
  /// Called with each result, as one line of text.
  std::function<void(const std::string&)> say{};
  /// Throws Error{aborted} if the user wants to stop; called between repeats.
  std::function<void()> check_stop{};
};

/// Copies within each memory node by one of its cores and by all of them, with blocks that fit into caches and blocks
/// that do not, and from each node's cores to every other node's memory.
std::vector<topology::CopyFigure> measure_copies(const Measuring& how, const Topology& topology);

/// The forward and backward pass of dense layers on the CPU device, f32 and bf16, for several numbers of rows: on one
/// core, on every core with its own model, and on all cores together. Empty without the CPU device.
std::vector<topology::ComputeFigure> measure_compute(const Measuring& how, const Topology& topology);

/// Each GPU that CUDA shows this process, by the device that trains: copies within its memory and between it and the
/// host's, the launch of a recorded program, and the forward and backward pass of dense layers in f32, TF32 and bf16 by
/// cuBLASLt, where it is found, and in f32 and bf16 by own kernels. Then copies from each GPU to each other one that
/// reaches its memory, pair by pair, by processes that are started for this. Sizes grow until a measurement takes long
/// enough, so a slow GPU is measured with smaller ones. Adds figures and the version of CUDA to `all`; nothing without
/// a GPU. Throws as Crew.
void measure_gpus(const Measuring& how, const rtrun::Signals& signals, topology::Measurements& all);

/// Between two processes of this host, which are started for this, over shared memory and over TCP on the loopback
/// device. Throws as Crew. Empty without UCX.
std::vector<topology::MessageFigure> measure_messages_here(const Measuring& how, const rtrun::Signals& signals,
                                                           const Topology& topology);

/// Between the first ranks of each pair of nodes of a job, pair by pair; every rank calls it. Rank 0 gets the figures,
/// other ranks none. Throws Error{unsupported} without UCX.
std::vector<topology::MessageFigure> measure_messages_between(const Measuring& how, Bootstrap& bootstrap,
                                                              std::uint32_t rank);

}  // namespace troupe::rttopo
