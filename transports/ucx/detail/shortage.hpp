#pragma once

#include <string>

#include "transports/ucx/ucx_transport.hpp"

namespace troupe {

/// What this process is short of, when UCX does not get what it needs: open files, or room in /dev/shm unless `means`
/// does without. Half a sentence with the cure, to stand before UCX's own reason.
std::string ucx_shortage(UcxMeans means);

}  // namespace troupe
