#pragma once

#include "runtime/base/trace.hpp"

namespace troupe {

/// The profiler that is attached to this process through NVTX, such as NVIDIA's nsys: it shows ranges in the domain
/// "Troupe". Null: none is attached, or this build has no NVTX. Lives as long as the process. Threads: any.
RangeListener* attached_profiler() noexcept;

}  // namespace troupe
