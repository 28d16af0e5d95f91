#pragma once

#include <string>

#include "runtime/config/config.hpp"
#include "runtime/data/find.hpp"
#include "runtime/planning/plan.hpp"
#include "runtime/planning/topology.hpp"

namespace troupe::rtrun {

/// What `rtrun plan` adds to a plan: the step time that the cost model predicts, and from which figures. `node` is what
/// the slowest of its nodes is like; `is_here`: that is this host. `figures`: the file of `rttopo bench`; empty: this
/// host's where `is_here`, and assumed ones where there are none. Throws Error{invalid} for a file that is none.
std::string predicted_text(const Configuration& configuration, const DataPlace& data, const Plan& plan,
                           const Topology& node, bool is_here, const std::string& figures);

/// `rtrun plan --compare REPORT`: predicted against measured, for the ranks and nodes that the run had, all of which
/// are taken to be like this host. Throws Error{invalid} for a report that is none, has no steps, or is of another
/// model.
std::string compared_text(const Configuration& configuration, const DataPlace& data, const std::string& report,
                          const std::string& figures);

}  // namespace troupe::rtrun
