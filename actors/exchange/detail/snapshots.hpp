#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/memory/arena.hpp"

namespace troupe::detail {

/// Buffers of equal size from an arena. Each is lent until the last copy of its owner is destroyed, on whatever thread.
/// New ones are allocated if none is free. Threads: take() by one.
class Snapshots {
 public:
  Snapshots(Arena& arena, std::uint64_t size_bytes) : arena_(arena), size_bytes_(size_bytes) {}
  /// Throws Error{out_of_memory} if none is free and the arena has no space.
  std::pair<Memory, std::shared_ptr<const void>> take();

 private:
  struct Free {
    std::mutex mutex;  // guards `buffers`
    std::vector<Memory> buffers;
  };
  Arena& arena_;
  const std::uint64_t size_bytes_;
  const std::shared_ptr<Free> free_ = std::make_shared<Free>();
};

}  // namespace troupe::detail
