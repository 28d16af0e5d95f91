#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/topology/machine.hpp"

namespace troupe::topology {

enum class Severity : std::uint8_t { note, warning, error };
std::string_view name_of(Severity severity) noexcept;

struct Finding {
  std::string rule;  // id of the rule
  Severity severity = Severity::warning;
  std::string host;
  std::string evidence;  // what was seen, with figures
  std::string cure;      // what to do about it
};

/// A rule as the manual lists it.
struct RuleName {
  std::string_view id;
  std::string_view about;
};
/// All rules, in the order in which they are tried.
std::vector<RuleName> doctor_rules();
/// Those of them for which at least one machine tells what they need.
std::vector<RuleName> applied_rules(std::span<const Machine> machines);

/// Applies every rule to every machine, and those about peers to all of them together. A rule whose facts nobody looked
/// up finds nothing.
std::vector<Finding> examine(std::span<const Machine> machines);

}  // namespace troupe::topology
