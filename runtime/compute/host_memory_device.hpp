#pragma once

#include <unordered_map>

#include "runtime/compute/device.hpp"

namespace troupe {

/// The common part of devices that work in memory of the node's processes: all memory that they allocate lies in
/// arenas.
class HostMemoryDevice : public Device {
 public:
  Memory allocate(ArenaId id, MemoryKind kind, std::uint64_t size_bytes) override;
  RegionTicket ticket(ArenaId id) const override;
  Memory import(const RegionTicket& ticket) override;

 protected:
  /// `space` outlives the device.
  explicit HostMemoryDevice(AddressSpace& space) : space_(space) {}
  AddressSpace& space() const noexcept { return space_; }

 private:
  AddressSpace& space_;
  std::unordered_map<ArenaId, RegionTicket> tickets_;  // of the memory that it allocated
};

/// The ticket of memory that lies in an arena, and the ticket of that arena.
RegionTicket region_ticket(const ArenaTicket& ticket, MemoryKind kind) noexcept;
ArenaTicket arena_ticket(const RegionTicket& ticket) noexcept;
/// The whole arena except its directory.
Memory whole_of(const Arena& arena) noexcept;

}  // namespace troupe
