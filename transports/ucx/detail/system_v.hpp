#pragma once

namespace troupe {

/// Does nothing itself: naming it makes the linker take the file that keeps UCX from making System V segments.
void keep_ucx_from_system_v() noexcept;

}  // namespace troupe
