#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <vector>

#include "runtime/topology/measurements.hpp"
#include "runtime/topology/paths.hpp"
#include "tools/rttopo/cli.hpp"

// What several commands need for their answers.
namespace troupe::rttopo {

/// The machines of the command line: of files, of a run, or this host.
std::vector<Node> nodes_of(const CommandLine& line, Blocking* watch = nullptr);
/// The figures for the shown machine: those of --figures, or this host's if this host is shown. Throws Error{invalid}.
std::optional<topology::Measurements> figures_of(const CommandLine& line);
/// The machine of a command that is about one; `what` begins the error's text. Throws Error{invalid}.
const Node& only(const std::vector<Node>& nodes, const char* what);

void print(const nlohmann::ordered_json& json, std::ostream& out);
nlohmann::ordered_json path_json(const topology::Index& index, const topology::Path& path);

/// `rttopo doctor`; `color`: with terminal control sequences.
int doctor(const CommandLine& line, std::ostream& out, bool color);
/// `rttopo explain`.
int explain(const CommandLine& line, std::ostream& out);

}  // namespace troupe::rttopo
