#include "actors/group/detail/shared_arenas.hpp"

#include <cstring>

#include "runtime/base/error.hpp"

namespace troupe::group {
namespace {

/// Higher than those that an application counts from 1, and those of the remote actors.
constexpr std::uint32_t kRunning = 255;

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

std::vector<std::byte> SharedArenas::ticket() const {
  if (!own_) return {};
  const ArenaTicket ticket = own_->ticket();
  std::vector<std::byte> bytes(sizeof ticket);
  std::memcpy(bytes.data(), &ticket, sizeof ticket);
  return bytes;
}

std::vector<std::byte> SharedArenas::map(AddressSpace& space, const std::vector<std::vector<std::byte>>& tickets) {
  std::vector<std::byte> mine(tickets.size());  // for each peer, whether its arena is mapped here
  for (std::uint32_t peer = 0; peer < tickets.size(); ++peer) {
    if (tickets[peer].empty()) continue;
    ArenaTicket ticket;
    TROUPE_CHECK(tickets[peer].size() == sizeof ticket, Code::corrupt, "the arena ticket of peer ", peer, " has ",
                 tickets[peer].size(), " bytes");
    std::memcpy(&ticket, tickets[peer].data(), sizeof ticket);
    TROUPE_CHECK(ticket.id == arena_id({peer}, kRunning), Code::corrupt, "peer ", peer, " offers the arena ",
                 ticket.id.value, ", which is not its own");
    const bool is_own = own_ && own_->id() == ticket.id;
    auto arena = is_own ? nullptr : open_if_near(ticket);
    if (is_own || arena) mine[peer] = std::byte{1};
    if (arena) space.map(std::move(arena));
  }
  return mine;
}

void SharedArenas::learn(const std::vector<std::vector<std::byte>>& told) {
  for (std::uint32_t peer = 0; peer < told.size(); ++peer) {
    TROUPE_CHECK(told[peer].size() == told.size(), Code::corrupt, "peer ", peer, " told of ", told[peer].size(),
                 " arenas in a group of ", told.size());
    for (std::uint32_t of = 0; of < told.size(); ++of) {
      if (told[peer][of] == std::byte{1}) mapped_.emplace(Peer{peer}, arena_id({of}, kRunning));
    }
  }
}

}  // namespace troupe::group
