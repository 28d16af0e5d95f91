#pragma once

namespace troupe {

/// Does nothing itself: naming it makes the linker take the file that gives UCX's signal handlers back before main().
void keep_ucx_from_signals() noexcept;

}  // namespace troupe
