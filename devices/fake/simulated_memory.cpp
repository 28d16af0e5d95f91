#include "devices/fake/simulated_memory.hpp"

#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include "runtime/compute/host_memory_device.hpp"

namespace troupe {
namespace {

/// A range that must not be accessed. The signal handler reads it, so there are no locks; a free one has no base.
struct Guard {
  std::atomic<std::uintptr_t> base{0};
  std::atomic<std::uint64_t> size_bytes{0};
  std::atomic<std::uint32_t> arena{0};
};
std::array<Guard, 256> guards;
struct sigaction before;

/// Builds a line without heap memory.
class Line {
 public:
  Line& operator<<(std::string_view text) {
    const std::size_t count = std::min(text.size(), room_.size() - used_);
    std::memcpy(room_.data() + used_, text.data(), count);
    used_ += count;
    return *this;
  }
  Line& operator<<(std::uint64_t number) {
    char digits[20];
    std::size_t at = sizeof digits;
    do {
      digits[--at] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    return *this << std::string_view{digits + at, sizeof digits - at};
  }
  void print() const { (void)!write(STDERR_FILENO, room_.data(), used_); }

 private:
  std::array<char, 200> room_{};
  std::size_t used_ = 0;
};

/// Reports the access, and leaves the rest to the previous handler of the signal.
void report_access(int, siginfo_t* about, void*) {
  const auto at = reinterpret_cast<std::uintptr_t>(about->si_addr);
  for (const Guard& guard : guards) {
    const std::uintptr_t base = guard.base.load();
    if (base == 0 || at < base || at - base >= guard.size_bytes.load()) continue;
    Line line;
    line << "the host has touched device memory: byte " << at - base << " of arena " << guard.arena.load()
         << ", from\n";
    line.print();
    std::array<void*, 24> frames;
    backtrace_symbols_fd(frames.data(), backtrace(frames.data(), frames.size()), STDERR_FILENO);
    break;
  }
  sigaction(SIGSEGV, &before, nullptr);  // the access is repeated, and now meets the previous handler
}

/// Once per process.
void watch_accesses() {
  static const bool done = [] {
    void* frame = nullptr;
    backtrace(&frame, 1);  // loads its library now, not in the handler
    struct sigaction action {};
    action.sa_sigaction = report_access;
    action.sa_flags = SA_SIGINFO;
    TROUPE_CHECK_ERRNO(sigaction(SIGSEGV, &action, &before) == 0, Code::environment, "cannot handle SIGSEGV");
    return true;
  }();
  (void)done;
}

Guard& free_guard() {
  const auto found = std::find_if(guards.begin(), guards.end(), [](const Guard& g) { return g.base.load() == 0; });
  TROUPE_CHECK(found != guards.end(), Code::out_of_memory, "at most ", guards.size(),
               " regions of simulated device memory");
  return *found;
}

}  // namespace

SimulatedDeviceMemory::~SimulatedDeviceMemory() {
  for (const Place& place : places_) {
    for (Guard& guard : guards)
      if (guard.base.load() == reinterpret_cast<std::uintptr_t>(place.shown)) guard.base = 0;
    munmap(place.shown, place.arena->size_bytes());
  }
}

Memory SimulatedDeviceMemory::add(std::shared_ptr<Arena> arena, bool own) {
  watch_accesses();
  static std::mutex claims;  // guards the search for a free guard, by devices of any thread
  const std::lock_guard claim{claims};
  Guard& guard = free_guard();
  void* const shown = mmap(nullptr, arena->size_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TROUPE_CHECK_ERRNO(shown != MAP_FAILED, Code::out_of_memory, "cannot reserve ", arena->size_bytes(),
                     " bytes of addresses (ulimit -v)");
  guard.arena = arena->id().value;
  guard.size_bytes = arena->size_bytes();
  guard.base = reinterpret_cast<std::uintptr_t>(shown);
  const Memory whole = whole_of(*arena);
  places_.push_back({arena, static_cast<std::byte*>(shown), own});
  space_.bind({arena->id(), places_.back().shown, arena->size_bytes(), MemoryKind::device});
  return whole;
}

Memory SimulatedDeviceMemory::allocate(ArenaId id, std::uint64_t size_bytes) {
  return slice(add(Arena::create(id, size_bytes), true), 0, size_bytes);
}

RegionTicket SimulatedDeviceMemory::ticket(ArenaId id) const {
  const auto found = std::find_if(places_.begin(), places_.end(),
                                  [id](const Place& place) { return place.own && place.arena->id() == id; });
  TROUPE_CHECK(found != places_.end(), Code::invalid, "no simulated device memory ", id.value, " was allocated here");
  return region_ticket(found->arena->ticket(), MemoryKind::device);
}

Memory SimulatedDeviceMemory::import(const RegionTicket& ticket) {
  return add(Arena::open(arena_ticket(ticket)), false);
}

std::byte* SimulatedDeviceMemory::address(const Memory& memory) const {
  std::byte* const shown = space_.address(memory);  // also checks the range
  for (const Place& place : places_)
    if (place.arena->id() == memory.arena) return place.arena->base() + (shown - place.shown);
  return shown;
}

}  // namespace troupe
