#include <algorithm>
#include <bit>

#include "actors/remote/detail/slab_pool.hpp"

namespace troupe::remote {
namespace {

/// The first arena is small, so that a process that sends no tensor pays next to nothing; each next one doubles the
/// pool.
constexpr std::uint64_t kFirstArena = std::uint64_t{1} << 20;

}  // namespace

SlabPool::SlabPool(AddressSpace& space, Peer self, std::uint32_t first_arena, std::uint64_t cap_bytes)
    : space_(space), self_(self), first_arena_(first_arena), cap_bytes_(cap_bytes) {}

std::optional<Memory> SlabPool::take(std::uint64_t size_bytes) noexcept {
  if (size_bytes > cap_bytes_) return {};
  const std::uint64_t slab_bytes = std::bit_ceil(std::max(size_bytes, kSmallest));
  const std::scoped_lock hold(mutex_);
  std::optional<Memory> found = reuse(slab_bytes, /*any_larger=*/false);
  if (!found) found = carve(slab_bytes);
  if (!found && grow(slab_bytes)) found = carve(slab_bytes);
  if (!found) found = reuse(slab_bytes, /*any_larger=*/true);
  if (found) found->size_bytes = size_bytes;
  return found;
}

std::optional<Memory> SlabPool::reuse(std::uint64_t slab_bytes, bool any_larger) {
  const auto slab = free_.lower_bound(slab_bytes);
  if (slab == free_.end() || (!any_larger && slab->first != slab_bytes)) return {};
  const Place place = slab->second;
  in_use_.emplace(place, slab->first);
  free_.erase(slab);
  return Memory{{place.first}, place.second, slab_bytes};
}

std::optional<Memory> SlabPool::carve(std::uint64_t slab_bytes) {
  if (left_in_last_ < slab_bytes) return {};
  const Memory memory = arenas_.back()->allocate(slab_bytes, kSmallest);
  left_in_last_ -= slab_bytes;
  in_use_.emplace(Place{memory.arena.value, memory.offset}, slab_bytes);
  return memory;
}

/// What is left of the last arena becomes free slabs, so that nothing is lost.
bool SlabPool::grow(std::uint64_t slab_bytes) {
  const std::uint64_t wanted = std::max({slab_bytes, size_bytes_, kFirstArena});
  const std::uint64_t bytes = std::min(wanted, cap_bytes_ - size_bytes_) / kSmallest * kSmallest;
  if (bytes < slab_bytes || arenas_.size() == kArenas) return false;
  try {
    auto arena = Arena::create(arena_id(self_, first_arena_ + static_cast<std::uint32_t>(arenas_.size())), bytes);
    space_.map(arena);
    while (left_in_last_ >= kSmallest) {
      const std::uint64_t rest = std::bit_floor(left_in_last_);
      const Memory memory = arenas_.back()->allocate(rest, kSmallest);
      free_.emplace(rest, Place{memory.arena.value, memory.offset});
      left_in_last_ -= rest;
    }
    arenas_.push_back(std::move(arena));
  } catch (const Error&) {
    return false;  // no memory: the same as the cap to whoever asked
  }
  size_bytes_ += bytes;
  left_in_last_ = bytes;
  return true;
}

void SlabPool::give_back(Memory memory) noexcept {
  const std::scoped_lock hold(mutex_);
  const auto slab = in_use_.find({memory.arena.value, memory.offset});
  if (slab == in_use_.end()) return;
  // Before others of its size: what was used last is in a cache, so it is used next.
  free_.emplace_hint(free_.lower_bound(slab->second), slab->second, slab->first);
  in_use_.erase(slab);
}

std::shared_ptr<const void> SlabPool::owner(Memory memory) {
  return {this, [pool = shared_from_this(), memory](const void*) { pool->give_back(memory); }};
}

std::uint64_t SlabPool::size_bytes() const noexcept {
  const std::scoped_lock hold(mutex_);
  return size_bytes_;
}

}  // namespace troupe::remote
