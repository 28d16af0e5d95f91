#include "tests/fuzz/allocation_watch.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::size_t> largest{0};
}  // namespace

namespace troupe::testing {
std::size_t largest_allocation() noexcept { return largest.load(); }
void reset_largest_allocation() noexcept { largest.store(0); }
}  // namespace troupe::testing

void* operator new(std::size_t size) {
  if (size > largest.load()) largest.store(size);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc{};
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {  // of std::stable_sort
  if (size > largest.load()) largest.store(size);
  return std::malloc(size);
}
// Not inlined: the compiler would take free() of what operator new returned for a mistake.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
