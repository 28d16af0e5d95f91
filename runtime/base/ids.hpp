#pragma once

// The room base: small types that every other room uses: ids, errors, clocks, blocking, file descriptors, files,
// threads, hashes, random numbers, the identity of this host and process. It knows nothing of training, tensors or
// messages. Code that only one other room uses belongs in that room.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace troupe {

/// A number with a meaning: ids of different kinds cannot be mixed, and there is no arithmetic on them.
template <class Tag, class Rep>
struct Id {
  using rep = Rep;
  Rep value{};
  friend constexpr auto operator<=>(const Id&, const Id&) = default;
};

/// A device's index in the view, 0 <= rank < world size.
using Rank = Id<struct RankTag, std::uint32_t>;
/// A process of the group; its identity survives views.
using Peer = Id<struct PeerTag, std::uint32_t>;
/// The number of a membership.
using ViewId = Id<struct ViewTag, std::uint32_t>;
/// The number of a training step; the first is 0.
using Step = Id<struct StepTag, std::uint64_t>;
/// A parameter group.
using GroupId = Id<struct GroupTag, std::uint32_t>;
/// An arena: unique in the group of processes, and never reused after it is unmapped; 0 means none. It consists of the
/// creator's peer number, below 65,535, and a running number, below 65,536: see `arena_id` and AddressSpace::new_arena.
using ArenaId = Id<struct ArenaTag, std::uint32_t>;

constexpr Step next(Step step) noexcept { return {step.value + 1}; }
constexpr ArenaId arena_id(Peer creator, std::uint32_t running) noexcept {
  return {((creator.value + 1) << 16) | running};
}

/// The process that made an arena; not for arena 0.
constexpr Peer creator_of(ArenaId arena) noexcept { return {(arena.value >> 16) - 1}; }

/// A buffer prepared for messages of others (RemoteActors::post_sink); the receiver chooses the numbers; 0 means none.
using SinkKey = Id<struct SinkTag, std::uint64_t>;

/// A timeline: the arena that it lies in and its index there (arena 0: timelines that one process made for itself).
struct TimelineId {
  ArenaId arena;
  std::uint32_t index = 0;
  friend constexpr auto operator<=>(const TimelineId&, const TimelineId&) = default;
};

/// A moment in a timeline: reached when the timeline's value is at least `value`. Plain data, valid in every process
/// that has mapped the arena. The default point (value 0) is always reached.
struct Point {
  TimelineId line;
  std::uint64_t value = 0;
  friend constexpr auto operator<=>(const Point&, const Point&) = default;
};

/// A range of bytes in an arena; plain data, valid in every process that has mapped the arena.
struct Memory {
  ArenaId arena;
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
  friend constexpr bool operator==(const Memory&, const Memory&) = default;
};

/// Who can access memory. Points say when data written by a device may be read, as for all memory.
enum class MemoryKind : std::uint8_t {
  host,    // ordinary pageable memory
  pinned,  // host memory that devices access directly
  device,  // accessible to devices only: the processor must not dereference its address
};

constexpr std::string_view name_of(MemoryKind kind) noexcept {
  switch (kind) {
    case MemoryKind::host: return "host";
    case MemoryKind::pinned: return "pinned";
    case MemoryKind::device: return "device";
  }
  return "unknown";
}

/// The part of `whole` that starts `offset` bytes after its beginning. The caller ensures that it lies inside.
constexpr Memory slice(Memory whole, std::uint64_t offset, std::uint64_t size_bytes) noexcept {
  return {whole.arena, whole.offset + offset, size_bytes};
}

/// Elements [first, first + count) of `whole`, each of `element_bytes`; an empty `whole` gives an empty result. The
/// caller ensures that they lie inside.
constexpr Memory elements(const Memory& whole, std::uint64_t first, std::uint64_t count,
                          std::uint64_t element_bytes) noexcept {
  return whole.size_bytes == 0 ? Memory{} : slice(whole, first * element_bytes, count * element_bytes);
}

}  // namespace troupe

template <class Tag, class Rep>
struct std::hash<troupe::Id<Tag, Rep>> {
  std::size_t operator()(troupe::Id<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value); }
};
template <>
struct std::hash<troupe::TimelineId> {
  std::size_t operator()(troupe::TimelineId id) const noexcept {
    return std::hash<std::uint64_t>{}((std::uint64_t{id.arena.value} << 32) | id.index);
  }
};
