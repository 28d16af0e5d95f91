#pragma once

#include <optional>
#include <string>

#include "runtime/config/detail/schema.hpp"

// The key model.layers: what it takes is in the table of layer kinds (runtime/model/layer_kinds.hpp).
namespace troupe::detail {

inline constexpr std::size_t kMostLayers = 4096;

/// Whether each entry is a layer, by itself: shapes are the graph's business, which knows the data.
std::optional<Finding> check_layers(const TomlValue& value);
void store_layers(Settings& settings, const TomlValue& value);
/// With every layer's name.
std::string show_layers(const Settings& settings);

}  // namespace troupe::detail
