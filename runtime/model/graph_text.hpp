#pragma once

#include <string_view>

#include "runtime/model/graph.hpp"

namespace troupe {

/// The graph whose to_string() is `graph`, a text in a checkpoint's manifest. The text does not contain Field::classes:
/// it is 0. Throws Error{corrupt} for a text of no graph, Error{unsupported} for a model whose layers are not known
/// because an app computes it.
Graph parse_graph(std::string_view graph);

}  // namespace troupe
