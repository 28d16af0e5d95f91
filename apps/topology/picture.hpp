#pragma once

#include <string>

#include "apps/topology/outline.hpp"

namespace troupe::topology {

/// The outline as an SVG: boxes in boxes, GPUs and NICs as cards in the switch that they share, links between GPUs as
/// lines, troubles in red. It needs no other file, and follows the reader's light or dark scheme.
std::string picture(const Index& index, const Entry& outline);

}  // namespace troupe::topology
