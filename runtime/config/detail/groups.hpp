#pragma once

#include <optional>
#include <string>

#include "runtime/config/detail/schema.hpp"

// The key update.group, part of the schema (schema_update.cpp).
namespace troupe::detail {

/// Each group takes names in a rank's arena, which has room for the names of this many.
inline constexpr std::size_t kMostGroups = 11;

/// Whether each table is a valid group by itself.
std::optional<Finding> check_groups(const TomlValue& value);
/// A group takes missing keys from `settings`, so all other keys must be stored before.
void store_groups(Settings& settings, const TomlValue& value);
std::string show_groups(const Settings& settings);
/// A contradiction between stored groups and the other settings.
std::optional<Finding> group_contradiction(const TomlValue& value, const Settings& settings);

}  // namespace troupe::detail
