#include "actors/remote/detail/memory_return.hpp"

#include <malloc.h>

#include <chrono>
#include <cstdlib>

namespace troupe::remote {
namespace {

/// The backlog must have ended this long ago.
constexpr auto kGoneFor = std::chrono::seconds(1);

/// malloc_trim() does not shrink the top of arenas other than the main one. An arena shrinks when a block of more than
/// 64 KiB below its top is freed, which is done here in the arena of this thread, which decodes. Source: glibc 2.36,
/// malloc/malloc.c (mtrim, _int_free).
void give_memory_back() {
  constexpr std::size_t kShrinks = 100 << 10;  // less than the size from which blocks are mapped separately
  void* volatile piece = std::malloc(kShrinks);
  std::free(piece);
  ::malloc_trim(0);
}

}  // namespace

void MemoryReturn::look(std::uint64_t bytes, Clock::time_point now) {
  note(bytes);
  if (std::exchange(seen_, false)) {
    returned_ = false;
    last_ = now;
  } else if (bytes > kLarge / 8) {
    last_ = now;
  }
  if (returned_ || now - last_ <= kGoneFor) return;
  returned_ = true;
  give_memory_back();
}

}  // namespace troupe::remote
