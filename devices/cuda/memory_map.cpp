#include "devices/cuda/memory_map.hpp"

#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace troupe::cuda {
namespace {

/// The driver knows memory of the host once for all devices of the process, so what they use is counted for the
/// process.
struct Known {
  std::mutex mutex;  // guards what follows; taken after a map's own
  std::map<std::pair<ArenaId, std::byte*>, std::uint32_t> users;
};
Known& known() {
  static Known all;
  return all;
}

}  // namespace

MemoryMap::~MemoryMap() {
  (void)gpu_->driver().ctx_set_current(gpu_->context());
  for (const auto& [id, region] : reached_) forget(region);
}

void MemoryMap::forget(const Region& region) noexcept {
  const std::lock_guard lock{known().mutex};
  const auto found = known().users.find({region.id, region.base});
  if (--found->second > 0) return;
  known().users.erase(found);
  (void)gpu_->driver().mem_host_unregister(region.base);
}

std::byte* MemoryMap::address(const Memory& memory) {
  std::byte* const at = space_.address(memory);
  const Region region = space_.region(memory.arena);
  if (region.kind != MemoryKind::device) reach(region);
  return at;
}

void MemoryMap::prepare(ArenaId id) {
  std::optional<Region> found;
  try {
    found = space_.region(id);
  } catch (const Error&) {
    return;
  }
  if (found->kind != MemoryKind::device) reach(*found);
}

/// Arenas whose mapping has ended: their addresses may come back in another one.
void MemoryMap::forget_unmapped() {
  for (auto at = reached_.begin(); at != reached_.end();) {
    try {
      (void)space_.region(at->first);
      ++at;
    } catch (const Error&) {
      forget(at->second);
      at = reached_.erase(at);
    }
  }
}

void MemoryMap::reach(const Region& region) {
  const std::lock_guard lock{mutex_};
  if (reached_.contains(region.id)) return;
  gpu_->use();
  forget_unmapped();
  const std::lock_guard of_all{known().mutex};
  std::uint32_t& users = known().users[{region.id, region.base}];
  if (users == 0) {
    const Result result = gpu_->driver().mem_host_register(region.base, region.size_bytes,
                                                           kHostRegisterPortable | kHostRegisterDeviceMap);
    // The driver knows memory that it has allocated itself, and what the program has made known to it.
    if (result == Result::host_memory_already_registered) return;
    if (result != Result::success) fail_to_reach(region, result);
  }
  ++users;
  reached_.emplace(region.id, region);
}

/// What a driver says where it may not lock memory would otherwise be taken for an error of the GPU.
void MemoryMap::fail_to_reach(const Region& region, Result result) const {
  const std::string what =
      text("arena ", region.id.value, " of ", region.size_bytes, " bytes cannot be made known to ", gpu_->name());
  const bool is_not_locked =
      result == Result::out_of_memory || result == Result::not_permitted || result == Result::operating_system;
  TROUPE_CHECK(!is_not_locked, code_of(result), what, ": ", name_of_result(gpu_->driver(), result),
               "; this is memory of the machine, which the driver locks: raise the limit (ulimit -l, LimitMEMLOCK), or "
               "give the container more memory");
  fail_call(gpu_->driver(), result, what);
}

std::uint64_t* MemoryMap::word(TimelineId line) {
  if (line.arena.value == 0) return nullptr;
  const Memory memory{line.arena, std::uint64_t{line.index} * sizeof(TimelineWord), sizeof(TimelineWord)};
  return reinterpret_cast<std::uint64_t*>(address(memory));
}

}  // namespace troupe::cuda
