#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// The variable, with its value, that makes OpenMP's threads (libgomp) sleep after some tens of microseconds of
/// polling, instead of milliseconds, on cores that other threads need between layers and steps. Empty if this process's
/// environment decides that already (GOMP_SPINCOUNT or OMP_WAIT_POLICY).
std::optional<std::pair<std::string, std::string>> short_polls();

/// Starts this program again in the same process, by exec, with that variable and these arguments, its name first,
/// since OpenMP reads it when it is loaded, before main(). Call it first in main(): what the program has opened without
/// O_CLOEXEC stays open. Returns if short_polls() is empty, as in a rank that rtrun has started, or if the program
/// cannot be started again.
void restart_with_short_polls(const std::vector<std::string>& arguments);

}  // namespace troupe
