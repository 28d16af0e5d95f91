#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/memory/arena.hpp"
#include "runtime/memory/futex_timeline.hpp"
#include "runtime/memory/line_watcher.hpp"

namespace troupe {
namespace {

constexpr std::chrono::microseconds kSpin{200};
/// Lower running numbers are assigned by the code that makes arenas: RemoteOptions::first_arena, groups, tests.
constexpr std::uint32_t kFirstFreeArena = 256;
constexpr std::uint32_t kEndOfArenas = 65536;

struct Mapped {
  Region region;
  std::shared_ptr<Arena> arena;  // null: a bound region
};

/// The mapped memory by id: every step reads it, without a lock. Open addressing. A place is empty, holds an id, or
/// held an id that was removed; a search skips removed places, and only an empty place ends it. So an id that is here
/// is always found, even while other ids are added and removed, and a reader follows only the pointer of the id that it
/// looks for. Ids are never reused, so a place that meanwhile got another id cannot be mistaken for the old one.
class ArenaTable {
 public:
  const Mapped* find(ArenaId id) const noexcept {
    for (std::size_t i = 0; i < kPlaces; ++i) {
      const Place& place = places_[index(id, i)];
      const std::uint32_t key = place.key.load(std::memory_order_acquire);
      if (key == id.value) return place.mapped.load(std::memory_order_acquire);
      if (key == kEmpty) return nullptr;
    }
    return nullptr;
  }
  /// `mapped`: of an id that is not here yet. add() and remove() together have one caller at a time. False: full.
  bool add(const Mapped& mapped) noexcept {
    const ArenaId id = mapped.region.id;
    for (std::size_t i = 0; i < kPlaces; ++i) {
      Place& place = places_[index(id, i)];
      const std::uint32_t key = place.key.load(std::memory_order_relaxed);
      if (key != kEmpty && key != kRemoved) continue;
      place.mapped.store(&mapped, std::memory_order_relaxed);
      place.key.store(id.value, std::memory_order_release);
      return true;
    }
    return false;
  }
  void remove(ArenaId id) noexcept {
    for (std::size_t i = 0; i < kPlaces; ++i) {
      Place& place = places_[index(id, i)];
      const std::uint32_t key = place.key.load(std::memory_order_relaxed);
      if (key == kEmpty) return;
      if (key != id.value) continue;
      place.key.store(kRemoved, std::memory_order_release);
      place.mapped.store(nullptr, std::memory_order_release);
      return;
    }
  }
  static constexpr std::size_t kPlaces = 1024;

 private:
  static constexpr std::uint32_t kEmpty = 0;         // arena 0 does not exist
  static constexpr std::uint32_t kRemoved = 0xffff;  // nor does this id, which no creator can make
  struct Place {
    std::atomic<std::uint32_t> key{kEmpty};
    std::atomic<const Mapped*> mapped{nullptr};
  };
  /// Ids are (creator << 16 | running): consecutive creators have neighbouring places.
  static std::size_t index(ArenaId id, std::size_t attempt) noexcept {
    return ((id.value >> 16) + 37 * (id.value & 0xffff) + attempt) % kPlaces;
  }

  std::array<Place, kPlaces> places_{};
};

struct Line {
  std::unique_ptr<TimelineWord> own;  // the word of a private timeline; destroyed after the timeline
  std::unique_ptr<FutexTimeline> line;
};

}  // namespace

struct AddressSpace::State {
  ArenaTable arenas;
  std::atomic<std::chrono::nanoseconds> spin{std::chrono::nanoseconds::zero()};
  std::shared_mutex mutex;  // guards what follows
  std::unordered_map<ArenaId, Mapped> mapped;
  std::unordered_map<TimelineId, Timeline*> bound;
  std::uint32_t next_private = 0;
  std::unordered_set<std::uint32_t> private_lines;
  std::vector<TimelineId> ended_private;  // those of private_lines that have ended
  std::uint32_t next_arena = kFirstFreeArena;
  std::unordered_map<TimelineId, Line> lines;
  LineWatchers watchers;             // destroyed before the timelines that it watches
  MemoryBinding* binding = nullptr;  // for new arenas

  Timeline* find(TimelineId id) const noexcept {
    if (const auto found = bound.find(id); found != bound.end()) return found->second;
    if (const auto found = lines.find(id); found != lines.end()) return found->second.line.get();
    return nullptr;
  }
  Line make(TimelineId id);
  void enter(Mapped entry);
  std::vector<Line> take_lines(ArenaId arena);
  const Region& region(ArenaId id) const {
    const Mapped* const found = arenas.find(id);
    TROUPE_CHECK(found != nullptr, Code::invalid, "arena ", id.value, " is not mapped in this process");
    return found->region;
  }
};

/// The caller holds the mutex.
Line AddressSpace::State::make(TimelineId id) {
  if (id.arena.value == 0) {
    TROUPE_CHECK(private_lines.contains(id.index), Code::invalid, "there is no private timeline ", id.index,
                 " in this process: ", id.index < next_private ? "it has ended" : "it was never made");
    auto word = std::make_unique<TimelineWord>();
    auto line = std::make_unique<FutexTimeline>(id, *word, nullptr, spin);
    return {std::move(word), std::move(line)};
  }
  const Mapped* const mapped_there = arenas.find(id.arena);
  TROUPE_CHECK(mapped_there != nullptr && mapped_there->arena != nullptr, Code::invalid, "timeline ", id.index,
               " lies in arena ", id.arena.value, ", which is not mapped in this process");
  const Arena* const arena = mapped_there->arena.get();
  const std::uint64_t offset = std::uint64_t{id.index} * sizeof(TimelineWord);
  TROUPE_CHECK(offset >= Arena::kPageBytes && offset < arena->size_bytes(), Code::invalid, "timeline ", id.index,
               " lies outside arena ", id.arena.value, ", which has ", arena->size_bytes(), " bytes");
  auto& word = *reinterpret_cast<TimelineWord*>(arena->base() + offset);
  return {nullptr, std::make_unique<FutexTimeline>(id, word, &watchers, spin)};
}

AddressSpace::AddressSpace() : state_(std::make_unique<State>()) {}
AddressSpace::~AddressSpace() = default;

void AddressSpace::State::enter(Mapped entry) {
  const ArenaId id = entry.region.id;
  const std::lock_guard lock{mutex};
  TROUPE_CHECK(arenas.find(id) == nullptr, Code::invalid, "arena ", id.value, " is mapped already");
  TROUPE_CHECK(mapped.size() < ArenaTable::kPlaces, Code::invalid, "a process maps at most ", ArenaTable::kPlaces,
               " arenas at once");
  arenas.add(mapped.emplace(id, std::move(entry)).first->second);
}

/// Takes out an arena's timelines. The caller holds the mutex, and destroys them without it: wakers may look things up.
std::vector<Line> AddressSpace::State::take_lines(ArenaId arena) {
  std::vector<Line> taken;
  for (auto it = lines.begin(); it != lines.end();) {
    if (it->first.arena != arena) {
      ++it;
      continue;
    }
    taken.push_back(std::move(it->second));
    it = lines.erase(it);
  }
  return taken;
}

void AddressSpace::map(std::shared_ptr<Arena> arena) {
  TROUPE_CHECK(arena != nullptr, Code::invalid, "there is no arena to map");
  const Region region{arena->id(), arena->base(), arena->size_bytes(), MemoryKind::host};
  state_->enter({region, std::move(arena)});
}

std::shared_ptr<Arena> AddressSpace::make_arena(ArenaId id, std::uint64_t size_bytes) {
  MemoryBinding* binding = nullptr;
  {
    const std::shared_lock lock{state_->mutex};
    binding = state_->binding;
  }
  auto arena = Arena::create(id, size_bytes, binding);
  map(arena);
  return arena;
}

void AddressSpace::place(MemoryBinding* binding, std::vector<std::uint32_t> cpus) {
  const std::lock_guard lock{state_->mutex};
  state_->binding = binding;
  state_->watchers.keep_on(std::move(cpus));
}

ArenaId AddressSpace::new_arena(Peer creator) {
  const std::lock_guard lock{state_->mutex};
  TROUPE_CHECK(state_->next_arena < kEndOfArenas && creator.value + 1 < kEndOfArenas, Code::unsupported, "peer ",
               creator.value, " cannot name another arena: it has named ", state_->next_arena - kFirstFreeArena,
               " so far; there are numbers for ", kEndOfArenas - kFirstFreeArena, " of each of ", kEndOfArenas - 1,
               " peers");
  return arena_id(creator, state_->next_arena++);
}

std::uint32_t AddressSpace::arenas_left() const noexcept {
  const std::shared_lock lock{state_->mutex};
  return kEndOfArenas - state_->next_arena;
}

void AddressSpace::bind(const Region& region) {
  TROUPE_CHECK(region.id.value != 0 && region.base != nullptr, Code::invalid,
               "memory to bind needs an id and a place; ", "arena ", region.id.value, " at 0x",
               hexadecimal(reinterpret_cast<std::uintptr_t>(region.base)), " has not both");
  state_->enter({region, nullptr});
}

/// The timelines end first, because they lie in the memory; before they end, the watchers stop using them.
bool AddressSpace::unmap(Blocking& blocking, ArenaId id) {
  Mapped gone;  // destroyed last, also when forget() throws
  std::vector<Line> ended;
  {
    const std::lock_guard lock{state_->mutex};
    auto entry = state_->mapped.extract(id);
    if (entry.empty()) return false;
    state_->arenas.remove(id);
    gone = std::move(entry.mapped());
    ended = state_->take_lines(id);
  }
  std::vector<FutexTimeline*> lines;
  for (const Line& line : ended) lines.push_back(line.line.get());
  state_->watchers.forget(blocking, lines);
  return true;
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
  state_->private_lines.insert(state_->next_private);
  return {ArenaId{0}, state_->next_private++};
}

void AddressSpace::end_private_timeline(TimelineId line) noexcept {
  const std::lock_guard lock{state_->mutex};
  state_->ended_private.push_back(line);
}

void AddressSpace::clear_ended() {
  std::vector<Line> ended;  // destroyed without the lock: their wakers may look something up
  const std::lock_guard lock{state_->mutex};
  for (const TimelineId line : std::exchange(state_->ended_private, {})) {
    state_->private_lines.erase(line.index);
    if (auto entry = state_->lines.extract(line); !entry.empty()) ended.push_back(std::move(entry.mapped()));
  }
}

Arena& AddressSpace::arena(ArenaId id) const {
  const Mapped* const mapped = state_->arenas.find(id);
  TROUPE_CHECK(mapped != nullptr && mapped->arena != nullptr, Code::invalid, "arena ", id.value,
               " is not mapped in this process");
  return *mapped->arena;
}

Region AddressSpace::region(ArenaId id) const { return state_->region(id); }

MemoryKind AddressSpace::kind(ArenaId id) const { return state_->region(id).kind; }

std::byte* AddressSpace::address(const Memory& memory) const {
  const Region& region = state_->region(memory.arena);
  TROUPE_CHECK(memory.offset <= region.size_bytes && memory.size_bytes <= region.size_bytes - memory.offset,
               Code::invalid, memory.size_bytes, " bytes at ", memory.offset, " leave arena ", memory.arena.value,
               ", which has ", region.size_bytes);
  return region.base + memory.offset;
}

void AddressSpace::may_spin(bool yes) noexcept {
  state_->spin.store(yes ? kSpin : std::chrono::nanoseconds::zero(), std::memory_order_relaxed);
}

Timeline& AddressSpace::timeline(TimelineId id) const {
  {
    const std::shared_lock lock{state_->mutex};
    if (Timeline* line = state_->find(id)) return *line;
  }
  // Another thread may have made the timeline between the two locks; there is only one object for each id.
  const std::lock_guard lock{state_->mutex};
  if (Timeline* line = state_->find(id)) return *line;
  return *state_->lines.emplace(id, state_->make(id)).first->second.line;
}

}  // namespace troupe
