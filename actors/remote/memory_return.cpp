#include "actors/remote/detail/memory_return.hpp"

#include <malloc.h>

#include <chrono>
#include <cstdlib>

namespace troupe::remote {
namespace {

/// It must have been gone for so long.
constexpr auto kGoneFor = std::chrono::seconds(1);

/// malloc_trim() leaves the end of every arena but the main one as it is; that shrinks when a piece of more than 64 KiB
/// in front of it is given back, here in the arena of this thread, which decodes. Source: glibc 2.36, malloc/malloc.c
/// (mtrim, _int_free).
void give_memory_back() {
  constexpr std::size_t kShrinks = 100 << 10;  // less than what is mapped by itself
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
