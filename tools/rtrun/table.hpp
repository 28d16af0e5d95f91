#pragma once

#include <cstdint>
#include <string>

#include "runtime/plan.hpp"
#include "runtime/report.hpp"
#include "runtime/settings.hpp"

namespace troupe::rtrun {

/// The table that ChainerMN's examples print (chainer's PrintReport): a column is as wide as its header, at least 10;
/// two spaces between columns; numbers as "%g".
std::string table_header();
std::string table_row(const EpochReport& report);

/// The lines that ChainerMN's MNIST example prints before its table, between two rules.
std::string job_header(const Settings& settings, const Plan& plan);

/// 12,345
std::string grouped(std::uint64_t number);

}  // namespace troupe::rtrun
