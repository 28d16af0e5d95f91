#pragma once

#include <vector>

#include "runtime/config/settings.hpp"
#include "runtime/model/graph.hpp"

namespace troupe {

/// The model with the layers that `settings.model` lists, or else the registered model that it names, for samples with
/// `fields`. Throws Error{invalid}: with the registered names if none has that name, with the fields if one that it
/// reads is missing.
Graph build_model(const Settings& settings, const std::vector<Field>& fields);

}  // namespace troupe
