#include "devices/cuda/memory_map.hpp"

#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::cuda {

/// The driver knows memory of the host once for all devices of the process. It knows it by its address, which may come
/// back for other memory, so a registration ends as soon as no address space of its users has an arena there.
class MemoryMap::Registrations {
 public:
  struct User {
    const MemoryMap* map;
    ArenaId arena;
  };

  /// Calls of the maps of all devices; each holds `mutex` meanwhile.
  std::mutex mutex;  // guards what follows; taken after a map's own
  std::map<std::byte*, std::vector<User>> users;

  /// Takes out the users for which `is_over`, given the address and the user, is true, and ends registrations without
  /// users.
  template <class IsOver>
  void end_where(const Driver& driver, IsOver is_over) noexcept {
    for (auto at = users.begin(); at != users.end();) {
      std::erase_if(at->second, [&](const User& user) { return is_over(at->first, user); });
      if (at->second.empty()) {
        (void)driver.mem_host_unregister(at->first);
        at = users.erase(at);
      } else {
        ++at;
      }
    }
  }
};

MemoryMap::Registrations& MemoryMap::registrations() {
  static Registrations all;
  return all;
}

MemoryMap::~MemoryMap() {
  (void)gpu_->driver().ctx_set_current(gpu_->context());
  const std::lock_guard lock{registrations().mutex};
  registrations().end_where(gpu_->driver(),
                            [this](const std::byte*, const Registrations::User& user) { return user.map == this; });
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

bool MemoryMap::has(ArenaId arena, const std::byte* base) const noexcept {
  try {
    return space_.region(arena).base == base;
  } catch (const Error&) {
    return false;
  }
}

void MemoryMap::reach(const Region& region) {
  const std::lock_guard lock{mutex_};
  if (const auto found = reached_.find(region.id); found != reached_.end() && found->second == region.base) return;
  gpu_->use();
  Registrations& all = registrations();
  const std::lock_guard of_all{all.mutex};
  all.end_where(gpu_->driver(), [](const std::byte* base, const Registrations::User& user) {
    return !user.map->has(user.arena, base);
  });
  std::erase_if(reached_, [this](const auto& reached) { return !has(reached.first, reached.second); });
  if (!all.users.contains(region.base)) {
    const Result result = gpu_->driver().mem_host_register(region.base, region.size_bytes,
                                                           kHostRegisterPortable | kHostRegisterDeviceMap);
    // The driver knows memory that it has allocated itself, and what the program has made known to it.
    if (result == Result::host_memory_already_registered) return;
    if (result != Result::success) fail_to_reach(region, result);
  }
  all.users[region.base].push_back({this, region.id});
  reached_.insert_or_assign(region.id, region.base);
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
