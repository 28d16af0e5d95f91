#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/compute/device.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

/// Device memory without a device. The address space returns an address at which every access ends the process, after a
/// line on stderr that names the arena, the byte and the caller (a system call that gets the address fails with
/// EFAULT); the device's own work uses another address. The memory lies in arenas, so that processes of a node can
/// import it. Threads: one caller at a time, except for address().
class SimulatedDeviceMemory {
 public:
  /// `space` outlives this object.
  explicit SimulatedDeviceMemory(AddressSpace& space) : space_(space) {}
  ~SimulatedDeviceMemory();
  SimulatedDeviceMemory(const SimulatedDeviceMemory&) = delete;
  SimulatedDeviceMemory& operator=(const SimulatedDeviceMemory&) = delete;

  Memory allocate(ArenaId id, std::uint64_t size_bytes);
  /// Throws Error{invalid} for any other id.
  RegionTicket ticket(ArenaId id) const;
  Memory import(const RegionTicket& ticket);
  /// The address of `memory`, simulated or host memory, for the device's own work. Throws like AddressSpace::address.
  /// Any thread, while nothing is allocated or imported.
  std::byte* address(const Memory& memory) const;

 private:
  struct Place {
    std::shared_ptr<Arena> arena;  // the mapping that the device's own work uses
    std::byte* shown = nullptr;    // the address that all others get
    bool own = false;
  };
  Memory add(std::shared_ptr<Arena> arena, bool own);

  AddressSpace& space_;
  std::vector<Place> places_;  // a few
};

}  // namespace troupe
