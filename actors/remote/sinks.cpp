#include "actors/remote/detail/sinks.hpp"

#include <algorithm>
#include <utility>

namespace troupe::remote {

void Sinks::post(SinkKey key, Memory memory, std::shared_ptr<const void> owner) {
  const std::scoped_lock hold(mutex_);
  posted_[key].push_back({key, memory, std::move(owner)});
  count_.fetch_add(1, std::memory_order_release);
}

std::size_t Sinks::withdraw(SinkKey key) {
  std::deque<Buffer> buffers;  // owners may run any code when they are destroyed, so this happens outside of the lock
  const std::scoped_lock hold(mutex_);
  const auto found = posted_.find(key);
  if (found == posted_.end()) return 0;
  buffers.swap(found->second);
  posted_.erase(found);
  count_.fetch_sub(buffers.size(), std::memory_order_release);
  return buffers.size();
}

std::optional<Memory> Sinks::take(SinkKey key, std::uint64_t size_bytes) {
  const std::scoped_lock hold(mutex_);
  const auto found = posted_.find(key);
  if (found == posted_.end() || found->second.front().memory.size_bytes < size_bytes) return {};
  landing_.push_back(std::move(found->second.front()));
  found->second.pop_front();
  if (found->second.empty()) posted_.erase(found);
  return slice(landing_.back().memory, 0, size_bytes);
}

std::optional<Sinks::Buffer> Sinks::end_landing(Memory memory) {
  const auto place = std::ranges::find_if(landing_, [&](const Buffer& buffer) {
    return buffer.memory.arena == memory.arena && buffer.memory.offset == memory.offset;
  });
  if (place == landing_.end()) return {};
  Buffer buffer = std::move(*place);
  landing_.erase(place);
  return buffer;
}

bool Sinks::landed(Memory memory, std::shared_ptr<const void>& owner) {
  if (empty()) return false;
  const std::scoped_lock hold(mutex_);
  std::optional<Buffer> buffer = end_landing(memory);
  if (!buffer) return false;
  owner = std::move(buffer->owner);
  count_.fetch_sub(1, std::memory_order_release);
  return true;
}

bool Sinks::give_back(Memory memory) {
  if (empty()) return false;
  const std::scoped_lock hold(mutex_);
  std::optional<Buffer> buffer = end_landing(memory);
  if (!buffer) return false;
  posted_[buffer->key].push_front(std::move(*buffer));
  return true;
}

}  // namespace troupe::remote
