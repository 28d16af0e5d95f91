#pragma once

#include <string_view>
#include <vector>

#include "runtime/topology/doctor.hpp"
#include "runtime/topology/machine.hpp"

namespace troupe::topology::detail {

// The rules about what the ranks of a job reported: where their threads, memory and transport are
// (RankPlace::placement), what their steps take (RankPlace::steps), and the clocks of their machines. Each adds its
// findings to `findings`.

void threads_off_plan(const Machine& machine, std::string_view rule, std::vector<Finding>& findings);
void memory_off_plan(const Machine& machine, std::string_view rule, std::vector<Finding>& findings);
void memory_not_bound(const Machine& machine, std::string_view rule, std::vector<Finding>& findings);
void network_off_plan(const Machine& machine, std::string_view rule, std::vector<Finding>& findings);
void rank_slow(const Machine& machine, std::string_view rule, std::vector<Finding>& findings);
void clock_skew(const Machine& machine, std::string_view rule, std::vector<Finding>& findings);

bool knows_threads(const Machine& machine);
bool knows_pages(const Machine& machine);
bool knows_memory_plan(const Machine& machine);
bool knows_devices(const Machine& machine);
bool knows_steps(const Machine& machine);
bool knows_skew(const Machine& machine);

}  // namespace troupe::topology::detail
