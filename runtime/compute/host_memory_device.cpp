#include "runtime/compute/host_memory_device.hpp"

#include <cstring>

namespace troupe {

static_assert(sizeof(ArenaTicket) <= sizeof(RegionTicket::bytes));

RegionTicket region_ticket(const ArenaTicket& ticket, MemoryKind kind) noexcept {
  RegionTicket made;
  made.kind = kind;
  std::memcpy(made.bytes.data(), &ticket, sizeof ticket);
  return made;
}

ArenaTicket arena_ticket(const RegionTicket& ticket) noexcept {
  ArenaTicket found;
  std::memcpy(&found, ticket.bytes.data(), sizeof found);
  return found;
}

Memory whole_of(const Arena& arena) noexcept {
  return {arena.id(), Arena::kPageBytes, arena.size_bytes() - Arena::kPageBytes};
}

Memory HostMemoryDevice::allocate(ArenaId id, MemoryKind kind, std::uint64_t size_bytes) {
  TROUPE_CHECK(kind != MemoryKind::device, Code::unsupported, "a ", traits().kind,
               " device has no memory of its own, it works in the host's");
  const auto arena = space_.make_arena(id, size_bytes);
  tickets_.emplace(id, region_ticket(arena->ticket(), kind));
  return slice(whole_of(*arena), 0, size_bytes);
}

RegionTicket HostMemoryDevice::ticket(ArenaId id) const {
  const auto found = tickets_.find(id);
  TROUPE_CHECK(found != tickets_.end(), Code::invalid, "this ", traits().kind, " device has allocated no memory ",
               id.value);
  return found->second;
}

Memory HostMemoryDevice::import(const RegionTicket& ticket) {
  TROUPE_CHECK(ticket.kind != MemoryKind::device, Code::unsupported, "a ", traits().kind,
               " device cannot reach another device's memory: give all ranks of a node devices of one kind");
  const auto arena = Arena::open(arena_ticket(ticket));
  space_.map(arena);
  return whole_of(*arena);
}

}  // namespace troupe
