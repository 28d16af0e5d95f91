#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/config/hosts.hpp"

namespace troupe::detail {

/// What is wrong with an entry, and the position of the wrong byte.
struct HostProblem {
  std::size_t at = 0;
  std::string text;
};

/// One entry: names and, if given, the number of slots of each.
struct HostEntry {
  std::vector<std::string> names;
  std::optional<std::uint32_t> slots;
};

/// Reads `name`, `name:4`, `name[01-04]:2`; expands at most kMostHosts names. Fills `entry`, or returns what is wrong.
std::optional<HostProblem> read_host_entry(std::string_view written, HostEntry& entry);
/// Reads a number of slots, 1 to kMostSlots; the message calls it `what`.
std::optional<HostProblem> read_slots(std::string_view digits, std::string_view what, std::uint32_t& slots);

/// Collects entries into a list.
class HostGathering {
 public:
  /// Messages about a later entry that contradicts this one name `where`. Returns what is wrong, or nothing.
  std::optional<std::string> add(const HostEntry& entry, std::string_view where);
  /// The list, which may be empty. add() must not be called after it.
  HostList take() { return std::move(list_); }

 private:
  struct Known {
    std::size_t index;
    std::string where;
    bool said;  // whether its slots were given
  };
  HostList list_;
  std::unordered_map<std::string, Known> known_;  // by the name in lower case
  std::uint64_t ranks_ = 0;
};

}  // namespace troupe::detail
