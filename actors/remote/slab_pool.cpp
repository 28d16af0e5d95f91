#include <algorithm>
#include <bit>

#include "actors/remote/detail/slab_pool.hpp"

namespace troupe::remote {
namespace {

/// The first arena is small, so that a process that sends no tensor needs almost no memory. Each further one doubles
/// the pool, until arenas are so large that there are few of them.
constexpr std::uint64_t kFirstArena = std::uint64_t{1} << 20;
constexpr std::uint64_t kLargestStep = std::uint64_t{256} << 20;
/// Where an arena's slabs begin: slabs are halved from there on.
constexpr std::uint64_t kBegin = Arena::kPageBytes;

}  // namespace

SlabPool::SlabPool(AddressSpace& space, Peer self, std::uint32_t first_arena, std::uint64_t cap_bytes)
    : space_(space), self_(self), first_arena_(first_arena), cap_bytes_(cap_bytes) {}

std::optional<Memory> SlabPool::take(std::uint64_t size_bytes) noexcept {
  if (size_bytes > cap_bytes_) return {};
  const std::uint64_t slab_bytes = std::bit_ceil(std::max(size_bytes, kSmallest));
  const std::scoped_lock hold(mutex_);
  std::optional<Memory> found = find(slab_bytes);
  if (!found && !joined_) {
    join_neighbours();
    found = find(slab_bytes);
  }
  if (!found && grow(slab_bytes)) found = find(slab_bytes);
  if (found) found->size_bytes = size_bytes;
  return found;
}

/// The smallest free slab that is large enough; the part that is not needed becomes free slabs again.
std::optional<Memory> SlabPool::find(std::uint64_t slab_bytes) {
  const auto slab = free_.lower_bound(slab_bytes);
  if (slab == free_.end()) return {};
  const auto [whole, place] = *slab;
  free_.erase(slab);
  for (std::uint64_t half = whole / 2; half >= slab_bytes; half /= 2)
    free_.emplace(half, Place{place.first, place.second + half});
  in_use_.emplace(place, slab_bytes);
  return Memory{{place.first}, place.second, slab_bytes};
}

/// From the smallest size on, since two joined slabs may be joined with a third.
void SlabPool::join_neighbours() {
  joined_ = true;
  for (std::uint64_t bytes = kSmallest; bytes <= size_bytes_ / 2; bytes *= 2) {
    const auto [first, last] = free_.equal_range(bytes);
    std::vector<Place> places;
    for (auto slab = first; slab != last; ++slab) places.push_back(slab->second);
    if (places.size() < 2) continue;
    free_.erase(first, last);
    std::ranges::sort(places);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const bool is_lower = (places[i].second - kBegin) % (2 * bytes) == 0;
      const bool joins =
          is_lower && i + 1 < places.size() && places[i + 1] == Place{places[i].first, places[i].second + bytes};
      free_.emplace(joins ? 2 * bytes : bytes, places[i]);
      if (joins) ++i;
    }
  }
}

/// An arena is cut into the largest powers of two first, so each slab begins at a multiple of its size.
bool SlabPool::grow(std::uint64_t slab_bytes) {
  const std::uint64_t step = std::min(std::max(size_bytes_, kFirstArena), kLargestStep);
  const std::uint64_t bytes = std::min(std::max(slab_bytes, step), cap_bytes_ - size_bytes_) / kSmallest * kSmallest;
  if (bytes < slab_bytes || arenas_.size() == kArenas) return false;
  try {
    auto arena = space_.make_arena(arena_id(self_, first_arena_ + static_cast<std::uint32_t>(arenas_.size())), bytes);
    std::uint64_t offset = arena->allocate(bytes, kSmallest).offset;
    for (std::uint64_t left = bytes; left > 0;) {
      const std::uint64_t slab = std::bit_floor(left);
      free_.emplace(slab, Place{arena->id().value, offset});
      offset += slab;
      left -= slab;
    }
    arenas_.push_back(std::move(arena));
  } catch (const Error&) {
    return false;  // no memory: for the caller the same as the limit
  }
  size_bytes_ += bytes;
  return true;
}

void SlabPool::give_back(Memory memory) noexcept {
  const std::scoped_lock hold(mutex_);
  const auto slab = in_use_.find({memory.arena.value, memory.offset});
  if (slab == in_use_.end()) return;
  // Inserted before other slabs of its size: it was used last and is in a cache, so it is used next.
  free_.emplace_hint(free_.lower_bound(slab->second), slab->second, slab->first);
  in_use_.erase(slab);
  joined_ = false;
}

std::shared_ptr<const void> SlabPool::owner(Memory memory) {
  return {this, [pool = shared_from_this(), memory](const void*) { pool->give_back(memory); }};
}

std::uint64_t SlabPool::size_bytes() const noexcept {
  const std::scoped_lock hold(mutex_);
  return size_bytes_;
}

}  // namespace troupe::remote
