#pragma once

#include <cstddef>

namespace troupe::cuda::host {
/// Of a process that would have ended well, but with reports.
inline constexpr int kMistakesExitCode = 97;
}  // namespace troupe::cuda::host

// What the stand-in exports beside the driver's entry points. Any thread.
extern "C" {
/// How many mistakes were found so far; writes them to `text`, a line each, cut to `size_bytes` with the final zero.
int troupe_cuda_host_reports(char* text, std::size_t size_bytes);
/// They do not make the process fail.
void troupe_cuda_host_forget_reports();
/// The CPU reads or writes pinned or registered memory now, which nobody sees otherwise: checked against what streams
/// do. `what` is the place's name.
void troupe_cuda_host_access(const void* at, std::size_t size_bytes, int writes, const char* what);
}
