#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "runtime/memory/arena.hpp"

namespace troupe::group {

/// The arenas that the processes of a group made for their tensors, and who has mapped which. Filled while a group is
/// joined, by one thread; afterwards any may ask.
class SharedArenas {
 public:
  /// Makes this process's own and maps it.
  void create(AddressSpace& space, Peer self, std::uint64_t size_bytes);
  const std::shared_ptr<Arena>& own() const noexcept { return own_; }
  /// For the others; empty without an arena of its own.
  std::vector<std::byte> ticket() const;

  /// Maps what the others offer (tickets by peer), where that is possible: on one host, in one pid namespace, by one
  /// user. Returns whom this process shares with, to be told to everyone. Throws Error{corrupt}.
  std::vector<std::byte> map(AddressSpace& space, const std::vector<std::vector<std::byte>>& tickets);
  /// What everyone told, by peer. Throws Error{corrupt}.
  void learn(const std::vector<std::vector<std::byte>>& told);

  bool shares(Peer peer, ArenaId arena) const { return mapped_.count({peer, arena}) > 0; }

 private:
  std::shared_ptr<Arena> own_;
  std::set<std::pair<Peer, ArenaId>> mapped_;
};

}  // namespace troupe::group
