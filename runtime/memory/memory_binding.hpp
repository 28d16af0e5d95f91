#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troupe {

/// Where the memory of a rank comes from: NUMA nodes that its plan names. What is asked for is a preference: when these
/// nodes have no page left, others give theirs. Nothing here throws or ends a run: what the system refuses is in
/// refusal(). Implementations: hwloc (devices/discovery), a recorder (tests). Threads: any.
class MemoryBinding {
 public:
  virtual ~MemoryBinding() = default;
  /// The nodes, by the system's numbers, ascending.
  virtual const std::vector<std::uint32_t>& nodes() const noexcept = 0;
  /// Pages of this mapping that are made from now on come from the nodes, whichever process touches them first where it
  /// is shared.
  virtual void bind(std::byte* base, std::uint64_t size_bytes) noexcept = 0;
  /// The same for all memory that the calling thread, and threads which it starts, touch first from now on. `moves`:
  /// pages that the process has are moved there too.
  virtual void bind_thread(bool moves) noexcept = 0;
  /// Ends that for the calling thread: it has what it had before the binding was made.
  virtual void release_thread() noexcept = 0;
  /// On which nodes `samples` pages lie that are spread evenly over [base, base + size_bytes), by the system's numbers;
  /// pages that nobody has touched are not counted. Empty: the system does not say.
  virtual std::map<std::uint32_t, std::uint64_t> locate(const std::byte* base, std::uint64_t size_bytes,
                                                        std::size_t samples) const noexcept = 0;
  /// What the system refused first, and why; empty: nothing so far.
  virtual std::string refusal() const = 0;
};

/// Binds what the calling thread, and the threads that it starts meanwhile, touch first. Null: changes nothing.
class ThreadMemory {
 public:
  explicit ThreadMemory(MemoryBinding* binding) noexcept : binding_(binding) {
    if (binding_ != nullptr) binding_->bind_thread(/*moves=*/false);
  }
  ~ThreadMemory() {
    if (binding_ != nullptr) binding_->release_thread();
  }
  ThreadMemory(const ThreadMemory&) = delete;
  ThreadMemory& operator=(const ThreadMemory&) = delete;

 private:
  MemoryBinding* const binding_;
};

}  // namespace troupe
