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

/// Buffers that wait for tensors whose senders name their key. A buffer is posted, then taken for a landing, and then
/// either filled, which makes it its reader's, or given back. Threads: any.
class Sinks {
 public:
  void post(SinkKey key, Memory memory, std::shared_ptr<const void> owner);
  /// How many were taken back.
  std::size_t withdraw(SinkKey key);
  /// Whether none is posted and none landed in, which costs one load.
  bool empty() const noexcept { return count_.load(std::memory_order_acquire) == 0; }

  /// The key's next buffer, cut to `size_bytes`; nothing when there is none, or it is too small.
  std::optional<Memory> take(SinkKey key, std::uint64_t size_bytes);
  /// A landing is whole: hands out the buffer's owner. False when take() did not give this memory.
  bool landed(Memory memory, std::shared_ptr<const void>& owner);
  /// Nothing landed: it is the key's next buffer again. False as above.
  bool give_back(Memory memory);

 private:
  struct Buffer {
    SinkKey key;
    Memory memory;
    std::shared_ptr<const void> owner;
  };
  std::optional<Buffer> end_landing(Memory memory);

  std::atomic<std::size_t> count_{0};
  std::mutex mutex_;  // guards what follows
  std::unordered_map<SinkKey, std::deque<Buffer>> posted_;
  std::vector<Buffer> landing_;  // few at a time
};

}  // namespace troupe::remote
