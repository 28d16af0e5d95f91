#pragma once

#include <cstdint>
#include <string>

namespace troupe::rtrun {

/// UCX 1.13 aborts a process whose peer dies while the two still connect (docs/gotchas.md). From now on an abort waits
/// up to a second for the news of that death (note_lost). If it comes, this process ends as any other that lost a rank:
/// with the reason and exit code 4. If not, the abort goes on.
void guard_against_aborts();

/// A rank was lost. Any thread.
void note_lost(std::uint32_t rank, const std::string& why);

}  // namespace troupe::rtrun
