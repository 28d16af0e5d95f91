#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/shares.hpp"
#include "runtime/model/graph.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/planning/plan.hpp"
#include "runtime/planning/topology.hpp"
#include "runtime/topology/measurements.hpp"

namespace troupe {

/// What the machines of a job do in a second: measured, and what is assumed where nothing was measured.
struct CostFigures {
  topology::Measurements measured;  // all nodes are taken to be like this one
  topology::Measurements assumed;
};

/// What a node is taken to do that nobody measured: by its cores, its memory nodes and what its NICs say of themselves.
topology::Measurements assumed_figures(const Topology& topology);

/// What a rank's device spends its time on in a step, by StepPart, as RankShare has it measured.
struct PredictedStep {
  std::array<double, kStepParts> seconds{};
  double& operator[](StepPart part) { return seconds.at(static_cast<std::size_t>(part)); }
  double operator[](StepPart part) const { return seconds.at(static_cast<std::size_t>(part)); }
  double total() const noexcept;
};

/// Steps that all groups take under the same policies.
struct PredictedPhase {
  std::uint64_t first = 0;
  std::uint64_t steps = 0;
  std::string policies;  // "sync", or of several groups "sync, async"
  PredictedStep step{};  // mean
};

struct Prediction {
  std::vector<PredictedPhase> phases;
  std::uint64_t steps = 0;
  PredictedStep mean;              // of all of them
  double samples_per_second = 0;   // of all ranks
  std::vector<std::string> basis;  // which figures it comes from, and what it leaves out: a sentence each
};

/// Predicts the first `steps` steps (at least one) of a job, without evaluations and checkpoints, from what each rank
/// has to compute and to send. The parts are those of the rank with most to compute; other ranks wait for it.
///   load      what filling a batch takes longer than the rest of the step
///   compute   forward and backward: each layer's operations by the measured rate for so many rows of its product,
///             threads and busy cores; fewer of them where convolutions use Winograd's algorithm
///   update    the rule's pass over the rank's part of the parameters: bytes by the measured copy rate
///   copy      copies of weights and gradients of policies that need them, likewise
///   exchange  by which the step is longer since ranks wait for each other's bytes: within a node the messages'
///             latency, between nodes what detail::exchange_timeline finds; where lanes have no cores of their own at
///             least the time that a core takes to move the bytes
/// Which step exchanges what is asked of the policies themselves. Hosted policies (async, ssp, easgd) are roughly
/// predicted, and the basis says so. Pure.
Prediction predict(const Plan& plan, const Graph& graph, const Layout& layout, const CostFigures& figures,
                   std::uint64_t steps);

/// For people.
std::string describe(const Prediction& prediction);

/// What was measured of a run, in seconds a step of rank 0's device.
struct MeasuredSteps {
  std::uint64_t steps = 0;
  double step_s = 0;                         // wall-clock time, evaluation left out
  std::array<double, kStepParts> seconds{};  // by StepPart
  bool has_parts = false;                    // the device measured them
};
/// Predicted against measured, part by part, with ratios.
std::string compare(const Prediction& prediction, const MeasuredSteps& measured);

}  // namespace troupe
