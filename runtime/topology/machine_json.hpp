#pragma once

#include <string>
#include <string_view>

#include "runtime/topology/machine.hpp"

namespace troupe::topology {

inline constexpr int kJsonVersion = 1;

/// The machine as JSON: "schema": "troupe.topology", "version": kJsonVersion, "counts" and all that Machine has, with
/// the names of its fields. What a machine lacks is left out (docs/topology.md). `indent` -1: one line.
std::string to_json(const Machine& machine, int indent = 1);
/// Reads what to_json() wrote; fields that it does not know are skipped, "counts" too. Throws Error{invalid} with
/// `source` in front.
Machine machine_from_json(std::string_view text, std::string_view source);

}  // namespace troupe::topology
