#pragma once

namespace troupe {

/// Does nothing. Calling it makes the linker include the file that removes UCX's signal handlers before main().
void keep_ucx_from_signals() noexcept;

}  // namespace troupe
