#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/load_balancer.hpp"
#include "runtime/model/graph.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/planning/plan.hpp"
#include "runtime/planning/topology.hpp"
#include "runtime/topology/measurements.hpp"

namespace troupe {

/// The speeds of a job's machines: measured, and assumed where nothing was measured.
struct CostFigures {
  topology::Measurements measured;  // all nodes are assumed to be like this one
  topology::Measurements assumed;   // with modelled GPUs and links (add_modelled_gpus), if ranks compute on GPUs
  bool tf32 = false;                // model.tf32: products in f32 on GPUs round their operands to TF32
};

/// The assumed speeds of a node without measurements: from its cores, its memory nodes and the rates of its NICs.
topology::Measurements assumed_figures(const Topology& topology);

/// How a rank's device spends its time in a step, by StepPart, as in a measured RankShare.
struct PredictedStep {
  std::array<double, kStepParts> seconds{};
  std::array<bool, kStepParts> modelled{};  // whether a figure that the part rests on was not measured
  double& operator[](StepPart part) { return seconds.at(static_cast<std::size_t>(part)); }
  double operator[](StepPart part) const { return seconds.at(static_cast<std::size_t>(part)); }
  double total() const noexcept;
  bool is_modelled() const noexcept;  // a part that takes time
};

/// A figure of a GPU, or of a link between GPUs, that a prediction rests on.
struct UsedFigure {
  std::string what;
  double value = 0;
  std::string unit;
  bool is_modelled = false;  // it was not measured
};

/// Steps in which all groups keep their policies.
struct PredictedPhase {
  std::uint64_t first = 0;
  std::uint64_t steps = 0;
  std::string policies;  // "sync", or with several groups "sync, async"
  PredictedStep step{};  // mean
};

struct Prediction {
  std::vector<PredictedPhase> phases;
  std::uint64_t steps = 0;
  PredictedStep mean;               // over all steps
  double samples_per_second = 0;    // of all ranks
  std::vector<UsedFigure> figures;  // of GPUs; empty: no rank computes on one
  std::vector<std::string> basis;   // which figures were used, and what is ignored: sentences
};

/// Predicts the first `steps` steps (at least one) of a job, without evaluations and checkpoints, from what each rank
/// has to compute and to send. The parts are those of the rank with the most computation; other ranks wait for it.
///   load      how much longer it takes to fill a batch than to do the rest of the step
///   compute   forward and backward: each layer's operations at the measured rate for its number of product rows, the
///             model's number of weights, its threads and busy cores; fewer operations where convolutions use
///             Winograd's algorithm
///   update    the rule's pass over the rank's part of the parameters: bytes at the measured copy rate
///   copy      copies of weights and gradients for policies that need them, likewise
///   exchange  how much longer the step is because ranks wait for each other's data: within a node the latency of
///             messages, between nodes by detail::exchange_timeline; if lanes have no cores of their own, at least the
///             time in which a core moves the bytes
/// Of ranks on GPUs compute is a roofline for each layer (detail::gpu_layer_times), update and copy are passes over the
/// memory in which they train, and exchange over NCCL is a ring beside the backward pass (detail::nccl_way). A part is
/// marked as modelled if a figure of it is among those that were assumed. The policies themselves are asked which step
/// exchanges what. Hosted policies (async, ssp, easgd) are predicted roughly, and the basis says so. Pure.
Prediction predict(const Plan& plan, const Graph& graph, const Layout& layout, const CostFigures& figures,
                   std::uint64_t steps);

/// For people.
std::string describe(const Prediction& prediction);

/// Measurements of a run, in seconds per step of rank 0's device.
struct MeasuredSteps {
  std::uint64_t steps = 0;
  double step_s = 0;                         // wall-clock time, without evaluations
  std::array<double, kStepParts> seconds{};  // by StepPart
  bool has_parts = false;                    // whether the device measured them
};
/// The prediction beside the measurement, part by part, with ratios.
std::string compare(const Prediction& prediction, const MeasuredSteps& measured);

}  // namespace troupe
