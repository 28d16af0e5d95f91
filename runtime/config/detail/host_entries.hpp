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

/// What is wrong with an entry, and at which of its bytes.
struct HostProblem {
  std::size_t at = 0;
  std::string text;
};

/// One entry: names and, if it says so, the slots of each.
struct HostEntry {
  std::vector<std::string> names;
  std::optional<std::uint32_t> slots;
};

/// Reads `name`, `name:4`, `name[01-04]:2`. Nothing is expanded beyond kMostHosts names. The entry, or what is wrong.
std::optional<HostProblem> read_host_entry(std::string_view written, HostEntry& entry);
/// Reads a number of slots, 1 to kMostSlots; `what` stands for it in the message.
std::optional<HostProblem> read_slots(std::string_view digits, std::string_view what, std::uint32_t& slots);

/// Gathers entries into a list.
class HostGathering {
 public:
  /// `where` is said when a later entry contradicts this one. What is wrong, or nothing.
  std::optional<std::string> add(const HostEntry& entry, std::string_view where);
  /// The list, which may be empty. No more is added.
  HostList take() { return std::move(list_); }

 private:
  struct Known {
    std::size_t index;
    std::string where;
    bool said;  // its slots
  };
  HostList list_;
  std::unordered_map<std::string, Known> known_;  // by the name in small letters
  std::uint64_t ranks_ = 0;
};

}  // namespace troupe::detail
