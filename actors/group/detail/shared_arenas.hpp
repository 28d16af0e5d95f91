#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "runtime/compute/device.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe::group {

/// The arenas and the memory of devices that the processes of a group made for their tensors, and which processes can
/// reach them. Filled by one thread while a group is joined; afterwards any thread may ask.
class SharedArenas {
 public:
  /// Makes this process's own arena and maps it.
  void create(AddressSpace& space, Peer self, std::uint64_t size_bytes);
  const std::shared_ptr<Arena>& own() const noexcept { return own_; }
  /// Allocates `size_bytes` of the device's memory, none for 0, and lets map() import those of others. The device
  /// outlives this object.
  void use(Device& device, Peer self, std::uint64_t size_bytes);
  /// Empty if there is none.
  const Memory& device_memory() const noexcept { return on_device_; }
  /// For the other processes; empty if there is neither an own arena nor memory of a device.
  std::vector<std::byte> ticket() const;

  /// Maps what the others offer (tickets by peer) where possible: on the same host, in the same pid namespace, with the
  /// same user, and with a device of the same kind. Returns, for all processes, what is mapped here of each peer.
  /// Throws Error{corrupt}.
  std::vector<std::byte> map(AddressSpace& space, const std::vector<std::vector<std::byte>>& tickets);
  /// The results of map() of all processes, by peer. Throws Error{corrupt}.
  void learn(const std::vector<std::vector<std::byte>>& told);

  bool shares(Peer peer, ArenaId arena) const { return mapped_.count({peer, arena}) > 0; }

 private:
  bool map_arena(AddressSpace& space, Peer of, const ArenaTicket& ticket);
  bool import(Peer of, const RegionTicket& ticket);

  std::shared_ptr<Arena> own_;
  Device* device_ = nullptr;
  Memory on_device_;
  std::set<std::pair<Peer, ArenaId>> mapped_;
};

}  // namespace troupe::group
