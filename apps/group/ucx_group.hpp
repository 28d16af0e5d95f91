#pragma once

#include "actors/group/group.hpp"

namespace troupe {

/// What Group::join(blocking, system) uses, for programs that change some of it: the place that the environment gives
/// (launch_place_from_environment), a transport over UCX, UCX's
/// version for the others to compare, and the topology of this node. Throws as
/// launch_place_from_environment().
GroupOptions ucx_group_options();

}  // namespace troupe
