#pragma once

#include <vector>

#include "runtime/config/settings.hpp"
#include "runtime/model/graph.hpp"

namespace troupe {

/// The model that the file of `settings.model` has, with the layers that it lists behind; or that of these layers
/// alone; or else the registered one that it names; for samples that have `fields`. Throws as read_onnx_file,
/// Error{invalid} listing the registered names when there is none of that name, and the fields when one that it reads
/// is missing.
Graph build_model(const Settings& settings, const std::vector<Field>& fields);

/// Throws Error{invalid} that names evaluate.text_bytes if it is set and `graph` cannot generate a text.
void check_generates(const Settings& settings, const Graph& graph);

}  // namespace troupe
