#pragma once

#include <string>
#include <vector>

namespace troupe::rtrun {

/// The path of the program of ranks: rtrun-rank in the folder of this program. Throws Error{environment}.
std::string rank_program();

/// Goes on as that program in this process, with these arguments, the program's name first. What this process has
/// opened without O_CLOEXEC stays open. OpenMP, which is loaded only then, polls as in ranks that rtrun launches
/// (short_polls()). Throws Error{environment} if the program cannot be started.
[[noreturn]] void become_rank(std::vector<std::string> arguments);

}  // namespace troupe::rtrun
