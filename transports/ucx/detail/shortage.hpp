#pragma once

#include <cstddef>
#include <string>

#include "transports/ucx/ucx_transport.hpp"

namespace troupe {

/// What this process is short of, when UCX does not get what it needs: open files, or room in /dev/shm unless `means`
/// does without. Half a sentence with the cure, to stand before UCX's own reason.
std::string ucx_shortage(UcxMeans means);

/// A folder for the files of UCX's shared memory when /dev/shm is too small for `processes` of them, or cannot be
/// written; empty: /dev/shm will do, or UCX_POSIX_DIR says where. Every process may take another: peers open the files
/// through /proc.
std::string other_shared_folder(std::size_t processes);

}  // namespace troupe
