#include "actors/group/detail/shared_arenas.hpp"

#include <cstring>

#include "runtime/base/error.hpp"

namespace troupe::group {
namespace {

/// Higher than those that an application counts from 1, and those of the remote actors.
constexpr std::uint32_t kRunning = 255;
constexpr std::uint32_t kOnDevice = 254;
/// What a process tells of another one.
constexpr std::byte kArenaMapped{1};
constexpr std::byte kImported{2};

template <class Ticket>
void append(std::vector<std::byte>& bytes, const Ticket& ticket) {
  const auto first = std::as_bytes(std::span{&ticket, 1});
  bytes.insert(bytes.end(), first.begin(), first.end());
}

/// Takes the ticket in front.
template <class Ticket>
Ticket take(std::span<const std::byte>& bytes) {
  Ticket ticket;
  std::memcpy(&ticket, bytes.data(), sizeof ticket);
  bytes = bytes.subspan(sizeof ticket);
  return ticket;
}

/// Null if this process cannot map that memory: then bytes are sent.
std::shared_ptr<Arena> open_if_near(const ArenaTicket& ticket) {
  try {
    return Arena::open(ticket);
  } catch (const Error& error) {
    if (error.code() != Code::environment) throw;
    return nullptr;
  }
}

}  // namespace

void SharedArenas::create(AddressSpace& space, Peer self, std::uint64_t size_bytes) {
  own_ = space.make_arena(arena_id(self, kRunning), size_bytes);
}

void SharedArenas::use(Device& device, Peer self, std::uint64_t size_bytes) {
  device_ = &device;
  if (size_bytes > 0) on_device_ = device.allocate(arena_id(self, kOnDevice), device.traits().memory, size_bytes);
}

std::vector<std::byte> SharedArenas::ticket() const {
  std::vector<std::byte> bytes;
  if (own_) append(bytes, own_->ticket());
  if (on_device_.size_bytes > 0) append(bytes, device_->ticket(on_device_.arena));
  return bytes;
}

bool SharedArenas::map_arena(AddressSpace& space, Peer of, const ArenaTicket& ticket) {
  TROUPE_CHECK(ticket.id == arena_id(of, kRunning), Code::corrupt, "peer ", of.value, " offers the arena ",
               ticket.id.value, ", which is not its own");
  if (own_ && own_->id() == ticket.id) return true;
  auto arena = open_if_near(ticket);
  if (!arena) return false;
  space.map(std::move(arena));
  return true;
}

/// False where this process has no device that reaches that memory.
bool SharedArenas::import(Peer of, const RegionTicket& ticket) {
  if (device_ == nullptr) return false;
  if (on_device_.size_bytes > 0 && on_device_.arena == arena_id(of, kOnDevice)) return true;
  try {
    const Memory memory = device_->import(ticket);
    TROUPE_CHECK(memory.arena == arena_id(of, kOnDevice), Code::corrupt, "peer ", of.value, " offers the memory ",
                 memory.arena.value, " of a device, which is not its own");
    return true;
  } catch (const Error& error) {
    if (error.code() != Code::environment && error.code() != Code::unsupported) throw;
    return false;
  }
}

std::vector<std::byte> SharedArenas::map(AddressSpace& space, const std::vector<std::vector<std::byte>>& tickets) {
  std::vector<std::byte> mine(tickets.size());
  for (std::uint32_t peer = 0; peer < tickets.size(); ++peer) {
    std::span<const std::byte> offered = tickets[peer];
    const bool has_arena = offered.size() % sizeof(RegionTicket) == sizeof(ArenaTicket);
    const bool has_region = offered.size() >= sizeof(RegionTicket);
    const std::size_t expected = (has_arena ? sizeof(ArenaTicket) : 0) + (has_region ? sizeof(RegionTicket) : 0);
    TROUPE_CHECK(offered.size() == expected, Code::corrupt, "the tickets of peer ", peer, " have ", offered.size(),
                 " bytes");
    if (has_arena && map_arena(space, {peer}, take<ArenaTicket>(offered))) mine[peer] |= kArenaMapped;
    if (has_region && import({peer}, take<RegionTicket>(offered))) mine[peer] |= kImported;
  }
  return mine;
}

void SharedArenas::learn(const std::vector<std::vector<std::byte>>& told) {
  for (std::uint32_t peer = 0; peer < told.size(); ++peer) {
    TROUPE_CHECK(told[peer].size() == told.size(), Code::corrupt, "peer ", peer, " told of ", told[peer].size(),
                 " arenas in a group of ", told.size());
    for (std::uint32_t of = 0; of < told.size(); ++of) {
      if ((told[peer][of] & kArenaMapped) != std::byte{}) mapped_.emplace(Peer{peer}, arena_id({of}, kRunning));
      if ((told[peer][of] & kImported) != std::byte{}) mapped_.emplace(Peer{peer}, arena_id({of}, kOnDevice));
    }
  }
}

}  // namespace troupe::group
