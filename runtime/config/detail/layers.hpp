#pragma once

#include <optional>
#include <string>

#include "runtime/config/detail/schema.hpp"

// The key model.layers: the table of layer kinds (runtime/model/layer_kinds.hpp) says what it takes.
namespace troupe::detail {

inline constexpr std::size_t kMostLayers = 4096;

/// Whether each entry is a valid layer by itself. Shapes are checked by the graph, which knows the data.
std::optional<Finding> check_layers(const TomlValue& value);
void store_layers(Settings& settings, const TomlValue& value);
/// With every layer's name.
std::string show_layers(const Settings& settings);

}  // namespace troupe::detail
