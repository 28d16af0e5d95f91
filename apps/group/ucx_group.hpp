#pragma once

#include "actors/group/group.hpp"

namespace troupe {

/// The options of Group::join(blocking, system), for programs that change some of them: the place that the environment
/// gives (launch_place_from_environment), a transport over UCX, UCX's version for comparison with the others, and the
/// topology of this node. Throws as launch_place_from_environment().
GroupOptions ucx_group_options();

}  // namespace troupe
