#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "runtime/memory/arena.hpp"

namespace troupe::group {

/// The arenas that the processes of a group made for their tensors, and which processes have mapped them. Filled by one
/// thread while a group is joined; afterwards any thread may ask.
class SharedArenas {
 public:
  /// Makes this process's own arena and maps it.
  void create(AddressSpace& space, Peer self, std::uint64_t size_bytes);
  const std::shared_ptr<Arena>& own() const noexcept { return own_; }
  /// For the other processes; empty if there is no own arena.
  std::vector<std::byte> ticket() const;

  /// Maps the arenas that the others offer (tickets by peer) where possible: on the same host, in the same pid
  /// namespace, with the same user. Returns, for all processes, the peers whose arenas are mapped here. Throws
  /// Error{corrupt}.
  std::vector<std::byte> map(AddressSpace& space, const std::vector<std::vector<std::byte>>& tickets);
  /// The results of map() of all processes, by peer. Throws Error{corrupt}.
  void learn(const std::vector<std::vector<std::byte>>& told);

  bool shares(Peer peer, ArenaId arena) const { return mapped_.count({peer, arena}) > 0; }

 private:
  std::shared_ptr<Arena> own_;
  std::set<std::pair<Peer, ArenaId>> mapped_;
};

}  // namespace troupe::group
