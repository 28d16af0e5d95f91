#pragma once

namespace troupe {

/// Does nothing. Calling it makes the linker include the file that keeps UCX from making System V segments.
void keep_ucx_from_system_v() noexcept;

}  // namespace troupe
