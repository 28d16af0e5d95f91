#pragma once

#include <cstddef>
#include <string>

#include "transports/ucx/ucx_transport.hpp"

namespace troupe {

/// What this process lacks if UCX does not get what it needs: open files, or space in /dev/shm unless `means` does not
/// use it. Half a sentence with the cure, which precedes UCX's own reason.
std::string ucx_shortage(UcxMeans means);

/// A folder for the files of UCX's shared memory if /dev/shm is too small for `processes` of them, or cannot be
/// written; empty: /dev/shm is sufficient, or UCX_POSIX_DIR names the folder. Each process may use a different folder:
/// peers open the files through /proc.
std::string other_shared_folder(std::size_t processes);

}  // namespace troupe
