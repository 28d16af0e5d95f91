#pragma once

#include <optional>
#include <string>

#include "runtime/config/detail/schema.hpp"

// The key update.group, part of the schema (schema_update.cpp).
namespace troupe::detail {

/// A rank's arena names each one's parts, and has so much room for names.
inline constexpr std::size_t kMostGroups = 11;

/// Whether each table is one, by itself.
std::optional<Finding> check_groups(const TomlValue& value);
/// What a table leaves out is as `settings` have it for all parameters, so everything else is stored before.
void store_groups(Settings& settings, const TomlValue& value);
std::string show_groups(const Settings& settings);
/// What is wrong with stored groups beside the other settings.
std::optional<Finding> group_contradiction(const TomlValue& value, const Settings& settings);

}  // namespace troupe::detail
