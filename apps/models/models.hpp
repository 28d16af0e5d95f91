#pragma once

#include "runtime/graph.hpp"
#include "runtime/settings.hpp"

namespace troupe {

/// The registered model that `settings.model` names, for samples of `input` shape and `classes` classes. Throws
/// Error{invalid} listing the registered names when there is none of that name.
Graph build_model(const Settings& settings, const Shape& input, std::uint32_t classes);

}  // namespace troupe
