#pragma once

#include <string>

#include "apps/report/run_record.hpp"

namespace troupe::report {

// Each is a <figure> or <section>, or empty when there is nothing to show.
std::string loss_figure(const RunRecord& record);
std::string accuracy_figure(const RunRecord& record);
std::string rate_figure(const RunRecord& record);  // empty, too, when the rate did not change
std::string throughput_figure(const RunRecord& record);
/// Shares of rank 0's time over time.
std::string shares_figure(const RunRecord& record);
/// The same over the whole run, with a table.
std::string split_section(const RunRecord& record);

}  // namespace troupe::report
