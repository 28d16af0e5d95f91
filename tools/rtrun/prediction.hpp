#pragma once

#include <string>

#include "runtime/config/config.hpp"
#include "runtime/data/find.hpp"
#include "runtime/planning/plan.hpp"
#include "runtime/planning/topology.hpp"

namespace troupe::rtrun {

/// What `rtrun plan` adds to a plan: the step time that the cost model predicts, and the figures that it used. `node`
/// describes the slowest node; `is_here`: it is this host. `figures`: a file of `rttopo bench`; empty: this host's if
/// `is_here`, or assumed figures if there are none. Throws Error{invalid} if it is not such a file.
std::string predicted_text(const Configuration& configuration, const DataPlace& data, const Plan& plan,
                           const Topology& node, bool is_here, const std::string& figures);

/// `rtrun plan --compare REPORT`: predicted and measured times, for the ranks and nodes of that run; all nodes are
/// assumed to be like this host. Throws Error{invalid} if it is not a report, has no steps, or belongs to another
/// model.
std::string compared_text(const Configuration& configuration, const DataPlace& data, const std::string& report,
                          const std::string& figures);

}  // namespace troupe::rtrun
