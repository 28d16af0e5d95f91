#pragma once

#include <string>

#include "apps/report/run_record.hpp"

namespace troupe::report {

// Each function returns a <figure> or <section>, or nothing if there is nothing to show.
std::string loss_figure(const RunRecord& record);
std::string accuracy_figure(const RunRecord& record);
std::string rate_figure(const RunRecord& record);        // also empty if the rate did not change
std::string loss_scale_figure(const RunRecord& record);  // empty if the loss was not scaled
std::string throughput_figure(const RunRecord& record);
/// How rank 0 spent its time, over time.
std::string shares_figure(const RunRecord& record);
/// The same for the whole run, with a table.
std::string split_section(const RunRecord& record);

}  // namespace troupe::report
