#pragma once

#include <string>
#include <vector>

#include "runtime/report.hpp"

namespace troupe::rtrun {

/// One epoch as ChainerMN's LogReport names things: {"main/loss": ..., "epoch": 1, "iteration": 300, ...}, one line.
std::string epoch_json(const EpochReport& report);
/// The whole log: an array of those, indented by 4 as LogReport does.
std::string log_json(const std::vector<EpochReport>& reports);
/// Puts `text` at `path` so that a reader sees the old file or the new one, as NewFile does. Throws Error{environment}
/// naming the file.
void replace_file(const std::string& path, const std::string& text);

}  // namespace troupe::rtrun
