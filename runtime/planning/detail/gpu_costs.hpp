#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model/graph.hpp"
#include "runtime/planning/detail/cost_figures.hpp"
#include "runtime/planning/detail/exchange_timeline.hpp"
#include "runtime/planning/plan.hpp"

namespace troupe::detail {

/// The rows of a layer's products: samples of a batch, times the positions that use the same weights.
std::uint32_t product_rows(const Graph& graph, std::uint32_t layer, std::uint32_t batch);

/// Bytes per second, and whether that was modelled instead of measured.
struct KnownRate {
  double bytes_per_second = 1;
  bool is_modelled = false;
};

/// How a rank's GPU computes, and reaches the memory that it trains in.
struct GpuSpeeds {
  topology::GpuFigure figure;
  bool is_modelled = false;   // figure
  KnownRate memory;           // its own: activations, read and written bytes
  KnownRate weights;          // where its weights lie: its own memory, another GPU's, or the host's
  KnownRate gradients;        // where its gradients and its part of the optimizer's state lie
  KnownRate host;             // from the host's memory, in which the loader puts batches
  double signal_s = 0;        // until a word in the host's memory has been seen
  std::uint32_t sharing = 1;  // ranks on this GPU
};
GpuSpeeds gpu_speeds(const Plan& plan, const RankPlan& rank, std::uint32_t sharing, CostLookup& figures);

/// The time of each layer on a GPU, as a roofline: the longest of its operations at the rate of products, its bytes at
/// the rates of the memories in which they lie, and its kernels at the time of a small one. The first layer also takes
/// the batch from the host's memory. `weights`: of the model. The sum is at least the launch of a recorded step.
/// Source: Williams, Waterman, Patterson 2009 (Roofline).
std::vector<LayerTime> gpu_layer_times(const Plan& plan, const Graph& graph, double weights, const GpuSpeeds& speeds,
                                       CostLookup& figures);

/// How NCCL moves the gradients and parameters of a plan's ranks.
struct NcclWay {
  double gradient_s_per_byte = 0;   // to their owners
  double parameter_s_per_byte = 0;  // back to all
  double call_s = 0;                // 2 (n - 1) steps of a ring
};
/// A ring over n ranks: (n - 1) / n of the bytes pass its slowest edge, twice. Between nodes the edge is what all the
/// network devices of a node's ranks send together. Where nodes with several GPUs exchange and NCCL does not add up,
/// each rank sends its own gradients to the other nodes. With two levels there is a ring within each node. Source:
/// Patarasuk, Yuan 2009 (bandwidth optimal all-reduce).
NcclWay nccl_way(const Plan& plan, CostLookup& figures);

}  // namespace troupe::detail
