#pragma once

#include <string>
#include <string_view>

#include "runtime/topology/machine.hpp"

namespace troupe::topology {

inline constexpr std::string_view kJsonSchema = "troupe.topology";
inline constexpr int kJsonVersion = 1;

/// The machine as JSON: "schema": "troupe.topology", "version": kJsonVersion, "counts", and all fields of Machine under
/// their names. Fields that a machine does not have are left out (docs/topology.md). `indent` -1: one line.
std::string to_json(const Machine& machine, int indent = 1);
/// Reads the output of to_json(); unknown fields, and "counts", are skipped. Throws Error{invalid}, whose text begins
/// with `source`.
Machine machine_from_json(std::string_view text, std::string_view source);
/// Limits the depth of brackets, so that a parser's stack stays small. Throws Error{invalid}, whose text begins with
/// `source`.
void check_json_depth(std::string_view text, std::string_view source);

}  // namespace troupe::topology
