#pragma once

// The room base: small words that every other room uses: ids, errors, clocks, blocking, file descriptors, files,
// threads, hashes, random numbers, who this host and process are. It knows nothing of training, of tensors or of
// messages; what is of use to one other room alone belongs there.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace troupe {

/// A number with a meaning: two ids of different kinds do not mix, and no arithmetic is offered by accident.
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
/// An arena: unique in the group of processes, and never used again once it is unmapped; 0 is none. The creator's peer
/// number, below 65,535, and a running number, below 65,536: see `arena_id` and AddressSpace::new_arena.
using ArenaId = Id<struct ArenaTag, std::uint32_t>;

constexpr Step next(Step step) noexcept { return {step.value + 1}; }
constexpr ArenaId arena_id(Peer creator, std::uint32_t running) noexcept {
  return {((creator.value + 1) << 16) | running};
}

/// Who made an arena; not for arena 0.
constexpr Peer creator_of(ArenaId arena) noexcept { return {(arena.value >> 16) - 1}; }

/// A buffer laid out for what others send (RemoteActors::post_sink); the receiver chooses the numbers; 0 is none.
using SinkKey = Id<struct SinkTag, std::uint64_t>;

/// A timeline, by the arena it lies in and its place there (arena 0: lines that one process made for itself).
struct TimelineId {
  ArenaId arena;
  std::uint32_t index = 0;
  friend constexpr auto operator<=>(const TimelineId&, const TimelineId&) = default;
};

/// A moment in the life of a timeline: reached when the line's value is at least `value`. Plain data; valid in every
/// process that mapped the arena. The default point (value 0) is always reached.
struct Point {
  TimelineId line;
  std::uint64_t value = 0;
  friend constexpr auto operator<=>(const Point&, const Point&) = default;
};

/// Bytes in an arena; plain data, valid in every process that mapped the arena.
struct Memory {
  ArenaId arena;
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
  friend constexpr bool operator==(const Memory&, const Memory&) = default;
};

/// Who can reach memory. What a device writes there is ordered by points, as always.
enum class MemoryKind : std::uint8_t {
  host,    // ordinary pageable memory
  pinned,  // host memory that devices read and write by themselves
  device,  // only devices; an address that a processor must not follow
};

constexpr std::string_view name_of(MemoryKind kind) noexcept {
  switch (kind) {
    case MemoryKind::host: return "host";
    case MemoryKind::pinned: return "pinned";
    case MemoryKind::device: return "device";
  }
  return "unknown";
}

/// The part of `whole` that starts `offset` bytes in. The caller keeps it inside.
constexpr Memory slice(Memory whole, std::uint64_t offset, std::uint64_t size_bytes) noexcept {
  return {whole.arena, whole.offset + offset, size_bytes};
}

/// Elements [first, first + count) of `whole`, each of `element_bytes`: empty in, empty out. The
/// caller keeps it inside.
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
