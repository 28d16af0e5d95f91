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

/// Memory for payloads: slabs whose sizes are powers of two, cut from arenas that are made when they are needed, up to
/// a cap. A slab that comes back is reused as it is; neighbours are joined again (buddies) when a larger one is wanted
/// and none is there. Memory is never returned to the kernel. Made with make_shared: the owners that it hands out keep
/// it alive. Threads: any.
class SlabPool : public std::enable_shared_from_this<SlabPool> {
 public:
  static constexpr std::uint64_t kSmallest = 4096;

  /// The arenas get the ids arena_id(self, first_arena + 0, 1, ...), at most kArenas of them.
  static constexpr std::uint32_t kArenas = 32;
  SlabPool(AddressSpace& space, Peer self, std::uint32_t first_arena, std::uint64_t cap_bytes);

  /// `size_bytes` at the start of a slab, 64-byte aligned or better; nothing when the cap (or the machine's memory) is
  /// reached. The caller gives it back, or lets owner() do it.
  std::optional<Memory> take(std::uint64_t size_bytes) noexcept;
  /// `memory` starts where take() said; its size does not matter.
  void give_back(Memory memory) noexcept;
  /// Gives `memory` back when the last copy ends.
  std::shared_ptr<const void> owner(Memory memory);
  /// Bytes of arenas made so far.
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

  mutable std::mutex mutex_;  // guards all below
  std::vector<std::shared_ptr<Arena>> arenas_;
  std::uint64_t size_bytes_ = 0;
  bool joined_ = true;                                          // nothing came back since neighbours were joined
  std::multimap<std::uint64_t, Place> free_;                    // by the slab's size
  std::unordered_map<Place, std::uint64_t, PlaceHash> in_use_;  // the slab's size
};

}  // namespace troupe::remote
