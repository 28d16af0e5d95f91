#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "runtime/arena.hpp"
#include "runtime/error.hpp"
#include "runtime/futex_timeline.hpp"
#include "runtime/line_watcher.hpp"

namespace troupe {
namespace {

constexpr std::chrono::microseconds kSpin{200};

/// Arenas by id: read without a lock on every step, only ever added to. Open addressing.
class ArenaTable {
 public:
  Arena* find(ArenaId id) const noexcept {
    for (std::size_t i = 0; i < kPlaces; ++i) {
      Arena* arena = place(id, i).load(std::memory_order_acquire);
      if (arena == nullptr || arena->id() == id) return arena;
    }
    return nullptr;
  }
  /// One caller at a time. False: full.
  bool add(Arena& arena) noexcept {
    for (std::size_t i = 0; i < kPlaces; ++i) {
      if (place(arena.id(), i).load(std::memory_order_relaxed) != nullptr) continue;
      place(arena.id(), i).store(&arena, std::memory_order_release);
      return true;
    }
    return false;
  }
  static constexpr std::size_t kPlaces = 1024;

 private:
  /// Ids are (creator << 8 | running): neighbours have neighbouring creators.
  static std::size_t index(ArenaId id, std::size_t attempt) noexcept {
    return ((id.value >> 8) + 37 * (id.value & 0xff) + attempt) % kPlaces;
  }
  std::atomic<Arena*>& place(ArenaId id, std::size_t attempt) noexcept { return places_[index(id, attempt)]; }
  const std::atomic<Arena*>& place(ArenaId id, std::size_t attempt) const noexcept {
    return places_[index(id, attempt)];
  }

  std::array<std::atomic<Arena*>, kPlaces> places_{};
};

struct Line {
  std::unique_ptr<TimelineWord> own;  // of a private line; destroyed after the line
  std::unique_ptr<FutexTimeline> line;
};

}  // namespace

struct AddressSpace::State {
  ArenaTable arenas;
  std::atomic<std::chrono::nanoseconds> spin{std::chrono::nanoseconds::zero()};
  std::shared_mutex mutex;  // guards what follows
  std::vector<std::shared_ptr<Arena>> mapped;
  std::unordered_map<TimelineId, Timeline*> bound;
  std::uint32_t next_private = 0;
  std::unordered_map<TimelineId, Line> lines;
  LineWatchers watchers;  // ends before the lines it watches

  Timeline* find(TimelineId id) const noexcept {
    if (const auto found = bound.find(id); found != bound.end()) return found->second;
    if (const auto found = lines.find(id); found != lines.end()) return found->second.line.get();
    return nullptr;
  }
  Line make(TimelineId id);
};

/// The caller holds the mutex.
Line AddressSpace::State::make(TimelineId id) {
  if (id.arena.value == 0) {
    TROUPE_CHECK(id.index < next_private, Code::invalid, "there is no private timeline ", id.index,
                 " in this process, which made ", next_private);
    auto word = std::make_unique<TimelineWord>();
    auto line = std::make_unique<FutexTimeline>(id, *word, nullptr, spin);
    return {std::move(word), std::move(line)};
  }
  Arena* arena = arenas.find(id.arena);
  TROUPE_CHECK(arena != nullptr, Code::invalid, "timeline ", id.index, " lies in arena ", id.arena.value,
               ", which is not mapped in this process");
  const std::uint64_t offset = std::uint64_t{id.index} * sizeof(TimelineWord);
  TROUPE_CHECK(offset >= Arena::kPageBytes && offset < arena->size_bytes(), Code::invalid, "timeline ", id.index,
               " lies outside arena ", id.arena.value, ", which has ", arena->size_bytes(), " bytes");
  auto& word = *reinterpret_cast<TimelineWord*>(arena->base() + offset);
  return {nullptr, std::make_unique<FutexTimeline>(id, word, &watchers, spin)};
}

AddressSpace::AddressSpace() : state_(std::make_unique<State>()) {}
AddressSpace::~AddressSpace() = default;

void AddressSpace::map(std::shared_ptr<Arena> arena) {
  TROUPE_CHECK(arena != nullptr, Code::invalid, "there is no arena to map");
  const std::lock_guard lock{state_->mutex};
  TROUPE_CHECK(state_->arenas.find(arena->id()) == nullptr, Code::invalid, "arena ", arena->id().value,
               " is mapped already");
  state_->mapped.push_back(arena);
  TROUPE_CHECK(state_->arenas.add(*arena), Code::invalid, "a process maps at most ", ArenaTable::kPlaces, " arenas");
}

void AddressSpace::bind(Timeline& line) {
  const TimelineId id = line.id();
  const std::lock_guard lock{state_->mutex};
  TROUPE_CHECK(state_->find(id) == nullptr, Code::invalid, "timeline ", id.arena.value, ":", id.index,
               " is in use already, another line cannot take its place");
  state_->bound.emplace(id, &line);
}

void AddressSpace::unbind(TimelineId line) noexcept {
  const std::lock_guard lock{state_->mutex};
  state_->bound.erase(line);
}

TimelineId AddressSpace::make_private_timeline() {
  const std::lock_guard lock{state_->mutex};
  return {ArenaId{0}, state_->next_private++};
}

Arena& AddressSpace::arena(ArenaId id) const {
  Arena* arena = state_->arenas.find(id);
  TROUPE_CHECK(arena != nullptr, Code::invalid, "arena ", id.value, " is not mapped in this process");
  return *arena;
}

std::byte* AddressSpace::address(const Memory& memory) const {
  const Arena& arena = this->arena(memory.arena);
  TROUPE_CHECK(memory.offset <= arena.size_bytes() && memory.size_bytes <= arena.size_bytes() - memory.offset,
               Code::invalid, memory.size_bytes, " bytes at ", memory.offset, " leave arena ", memory.arena.value,
               ", which has ", arena.size_bytes());
  return arena.base() + memory.offset;
}

void AddressSpace::may_spin(bool yes) noexcept {
  state_->spin.store(yes ? kSpin : std::chrono::nanoseconds::zero(), std::memory_order_relaxed);
}

Timeline& AddressSpace::timeline(TimelineId id) const {
  {
    const std::shared_lock lock{state_->mutex};
    if (Timeline* line = state_->find(id)) return *line;
  }
  const std::lock_guard lock{state_->mutex};
  if (Timeline* line = state_->find(id)) return *line;
  return *state_->lines.emplace(id, state_->make(id)).first->second.line;
}

}  // namespace troupe
