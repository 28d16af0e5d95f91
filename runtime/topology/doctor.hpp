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
  std::string evidence;  // what was found, with figures
  std::string cure;      // what to do about it
};

/// A rule, for the manual.
struct RuleName {
  std::string_view id;
  std::string_view about;
};
/// All rules, in the order in which they are applied.
std::vector<RuleName> doctor_rules();
/// The rules whose data at least one machine has.
std::vector<RuleName> applied_rules(std::span<const Machine> machines);

/// Applies every rule to every machine, and the rules about peers to all machines together. A rule without its data
/// finds nothing.
std::vector<Finding> examine(std::span<const Machine> machines);

}  // namespace troupe::topology
