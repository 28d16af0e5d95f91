#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "runtime/memory/arena.hpp"

namespace troupe::remote {

/// Memory for payloads: slabs with powers of two as sizes, cut from arenas that are created on demand, up to a limit. A
/// slab that is given back is reused without change; adjacent free slabs are joined (buddies) only if a larger one is
/// needed and there is none. Memory is never returned to the kernel. Made with make_shared: the owners that it returns
/// keep it alive. Threads: any.
class SlabPool : public std::enable_shared_from_this<SlabPool> {
 public:
  static constexpr std::uint64_t kSmallest = 4096;

  /// The arenas get the ids arena_id(self, first_arena + 0, 1, ...), at most kArenas of them.
  static constexpr std::uint32_t kArenas = 32;
  SlabPool(AddressSpace& space, Peer self, std::uint32_t first_arena, std::uint64_t cap_bytes);

  /// `size_bytes` at the start of a slab, aligned to at least 64 bytes; nothing if the limit (or the machine's memory)
  /// is reached. The caller must give it back, or let owner() do so.
  std::optional<Memory> take(std::uint64_t size_bytes) noexcept;
  /// `memory` must start where take() said; its size is not used.
  void give_back(Memory memory) noexcept;
  /// An owner that gives `memory` back when its last copy is destroyed.
  std::shared_ptr<const void> owner(Memory memory);
  /// Bytes of all arenas so far.
  std::uint64_t size_bytes() const noexcept;

 private:
  using Place = std::pair<std::uint32_t, std::uint64_t>;  // arena, offset
  struct PlaceHash {
    std::size_t operator()(const Place& place) const noexcept { return (place.second >> 12) * 31 + place.first; }
  };

  std::optional<Memory> find(std::uint64_t slab_bytes);
  void join_neighbours();
  bool grow(std::uint64_t slab_bytes);

  AddressSpace& space_;
  const Peer self_;
  const std::uint32_t first_arena_;
  const std::uint64_t cap_bytes_;

  mutable std::mutex mutex_;  // guards the members below
  std::vector<std::shared_ptr<Arena>> arenas_;
  std::uint64_t size_bytes_ = 0;
  bool joined_ = true;                                          // no slab was given back since slabs were joined
  std::multimap<std::uint64_t, Place> free_;                    // by the slab's size
  std::unordered_map<Place, std::uint64_t, PlaceHash> in_use_;  // the slab's size
};

}  // namespace troupe::remote
