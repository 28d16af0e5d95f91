#pragma once

#include <span>
#include <string>

#include "runtime/config/config.hpp"
#include "runtime/data/find_data.hpp"
#include "runtime/planning/cost_model.hpp"
#include "runtime/planning/plan.hpp"
#include "runtime/planning/topology.hpp"
#include "runtime/topology/machine.hpp"

namespace troupe::rtrun {

/// The machines that a prediction is for.
struct PredictedMachines {
  const Topology* node = nullptr;                      // the slowest node
  std::span<const topology::Machine* const> machines;  // of each kind; what is modelled of GPUs follows from them
  bool is_here = false;                                // the node is this host
};

/// A prediction, and what people are told beside it.
struct PredictedJob {
  Prediction prediction;
  std::string remarks;  // lines; empty: none
};

/// What `rtrun plan` adds to a plan: the step time that the cost model predicts, and the figures that it used.
/// `figures`: a file of `rttopo bench`; empty: this host's if the node is this host, or assumed figures if there are
/// none. Throws Error{invalid} if it is not such a file.
PredictedJob predicted(const Configuration& configuration, const DataPlace& data, const Plan& plan,
                       const PredictedMachines& machines, const std::string& figures);

/// A prediction beside what a run measured.
struct ComparedJob {
  PredictedJob predicted;
  MeasuredSteps measured;
};

/// `rtrun plan --compare REPORT`: predicted and measured times, for the ranks and nodes of that run; all nodes are
/// assumed to be like this host. Throws Error{invalid} if it is not a report, has no steps, or belongs to another
/// model, Error{environment} if the run's ranks computed on GPUs, and this host has none.
ComparedJob compared(const Configuration& configuration, const DataPlace& data, const std::string& report,
                     const std::string& figures);

}  // namespace troupe::rtrun
