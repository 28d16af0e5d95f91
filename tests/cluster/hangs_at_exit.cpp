// Preloaded into a job: the rank whose number TROUPE_TEST_HANGS is does everything, and then does not end.

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace {

__attribute__((destructor)) void hang() {
  const char* const rank = ::getenv("RANK");
  const char* const hangs = ::getenv("TROUPE_TEST_HANGS");
  if (rank == nullptr || hangs == nullptr || ::strcmp(rank, hangs) != 0) return;
  for (;;) ::pause();
}

}  // namespace
