#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/memory/arena.hpp"

namespace troupe::detail {

/// Equal buffers of an arena, each lent until the last copy of its owner has ended, on whatever thread. As many are
/// made as are lent at once. Threads: one takes.
class Snapshots {
 public:
  Snapshots(Arena& arena, std::uint64_t size_bytes) : arena_(arena), size_bytes_(size_bytes) {}
  /// Throws Error{out_of_memory} when none is free and the arena has no room.
  std::pair<Memory, std::shared_ptr<const void>> take();

 private:
  struct Free {
    std::mutex mutex;  // guards buffers
    std::vector<Memory> buffers;
  };
  Arena& arena_;
  const std::uint64_t size_bytes_;
  const std::shared_ptr<Free> free_ = std::make_shared<Free>();
};

}  // namespace troupe::detail
