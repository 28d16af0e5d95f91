#pragma once

#include <string_view>

#include "runtime/model/graph.hpp"

namespace troupe {

/// The graph whose to_string() is `graph`, as the manifest of a checkpoint has it. Field::classes is not in that text:
/// it is 0. Throws Error{corrupt} for a text that no graph has, Error{unsupported} for a model whose layers are not
/// known, since an app computes it itself.
Graph parse_graph(std::string_view graph);

}  // namespace troupe
