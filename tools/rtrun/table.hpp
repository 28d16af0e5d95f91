#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/settings.hpp"
#include "runtime/planning/plan.hpp"
#include "runtime/report/report.hpp"

namespace troupe::rtrun {

/// The table that ChainerMN's examples print (chainer's PrintReport): a column is as wide as its header, at least 10;
/// After the columns that every run has, there is one for each of `values`, the names of values that the app reports.
std::string table_header(const std::vector<std::string>& values = {});
std::string table_row(const EpochReport& report, const std::vector<std::string>& values = {});

/// The lines that ChainerMN's MNIST example prints before its table, between two rules.
std::string job_header(const Settings& settings, const Plan& plan);

}  // namespace troupe::rtrun
