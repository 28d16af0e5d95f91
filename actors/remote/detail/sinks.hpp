#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "runtime/base/ids.hpp"

namespace troupe::remote {

/// Buffers for tensors whose senders name their key. A buffer is posted, then taken for an arriving tensor, and then
/// either filled, after which it belongs to the tensor's reader, or given back. Threads: any.
class Sinks {
 public:
  void post(SinkKey key, Memory memory, std::shared_ptr<const void> owner);
  /// Returns how many were withdrawn.
  std::size_t withdraw(SinkKey key);
  /// Whether there are no posted buffers and none in use; it costs one load.
  bool empty() const noexcept { return count_.load(std::memory_order_acquire) == 0; }

  /// The key's next buffer, cut to `size_bytes`; nothing if there is none, or if it is too small.
  std::optional<Memory> take(SinkKey key, std::uint64_t size_bytes);
  /// The tensor has arrived: returns the buffer's owner. False if take() did not return this memory.
  bool landed(Memory memory, std::shared_ptr<const void>& owner);
  /// The tensor did not arrive: this is the key's next buffer again. False as above.
  bool give_back(Memory memory);

 private:
  struct Buffer {
    SinkKey key;
    Memory memory;
    std::shared_ptr<const void> owner;
  };
  std::optional<Buffer> end_landing(Memory memory);

  std::atomic<std::size_t> count_{0};
  std::mutex mutex_;  // guards the members below
  std::unordered_map<SinkKey, std::deque<Buffer>> posted_;
  std::vector<Buffer> landing_;  // few at a time
};

}  // namespace troupe::remote
