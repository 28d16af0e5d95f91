#include "actors/exchange/detail/snapshots.hpp"

namespace troupe::detail {

std::pair<Memory, std::shared_ptr<const void>> Snapshots::take() {
  Memory memory;
  {
    const std::lock_guard lock{free_->mutex};
    if (!free_->buffers.empty()) {
      memory = free_->buffers.back();
      free_->buffers.pop_back();
    }
  }
  if (memory.size_bytes == 0) memory = arena_.allocate(size_bytes_);
  // The owner has no value; only its destruction matters.
  std::shared_ptr<const void> owner(nullptr, [free = free_, memory](const void*) {
    const std::lock_guard lock{free->mutex};
    free->buffers.push_back(memory);
  });
  return {memory, std::move(owner)};
}

}  // namespace troupe::detail
