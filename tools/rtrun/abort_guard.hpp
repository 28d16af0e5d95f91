#pragma once

#include <cstdint>
#include <string>

namespace troupe::rtrun {

/// UCX 1.13 aborts a process whose peer dies while the two are still connecting (docs/gotchas.md). After this call an
/// abort waits up to a second for a report of that death (note_lost). If it comes, this process ends like any other
/// that has lost a rank: with the reason and exit code 4. If not, the process aborts.
void guard_against_aborts();

/// Reports that a rank was lost. Any thread.
void note_lost(std::uint32_t rank, const std::string& why);

}  // namespace troupe::rtrun
