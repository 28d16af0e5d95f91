#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/compute/device.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

/// Device memory without a device. What the address space says of it is an address at which every access ends the
/// process, after a line on stderr that tells which arena and which byte it was, and from where (a system call that is
/// given it fails with EFAULT); the device's own work finds the bytes at another address. Lies in arenas, so that
/// processes of a node can import it. Threads: one caller at a time, but for address().
class FarMemory {
 public:
  /// `space` outlives it.
  explicit FarMemory(AddressSpace& space) : space_(space) {}
  ~FarMemory();
  FarMemory(const FarMemory&) = delete;
  FarMemory& operator=(const FarMemory&) = delete;

  Memory allocate(ArenaId id, std::uint64_t size_bytes);
  /// Throws Error{invalid} for an id of others.
  RegionTicket ticket(ArenaId id) const;
  Memory import(const RegionTicket& ticket);
  /// Where the device's own work finds `memory`, of this kind or of the host's. Throws as AddressSpace::address. Any
  /// thread, while nothing is allocated or imported.
  std::byte* address(const Memory& memory) const;

 private:
  struct Place {
    std::shared_ptr<Arena> arena;  // mapped for the device's own work
    std::byte* shown = nullptr;    // what everybody else is told
    bool own = false;
  };
  Memory add(std::shared_ptr<Arena> arena, bool own);

  AddressSpace& space_;
  std::vector<Place> places_;  // few
};

}  // namespace troupe
