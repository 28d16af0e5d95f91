#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/memory/timeline.hpp"

namespace troupe::detail {

/// The status of a wait for `line` that began at `begun` and has passed its deadline.
Status overdue(const Blocking& blocking, const Timeline& line, std::uint64_t at, Clock::time_point begun,
               std::string_view what);

}  // namespace troupe::detail
