#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troupe {

/// The NUMA nodes from which a rank's memory is allocated; its plan names them. They are a preference: if these nodes
/// have no free page, others are used. Nothing here throws or ends a run: refusal() says what the system refused.
/// Implementations: hwloc (devices/discovery), a recorder (tests). Threads: any.
class MemoryBinding {
 public:
  virtual ~MemoryBinding() = default;
  /// The nodes, by the system's numbers, ascending.
  virtual const std::vector<std::uint32_t>& nodes() const noexcept = 0;
  /// Pages of this mapping that are made from now on come from the nodes. For shared memory it does not matter which
  /// process touches them first.
  virtual void bind(std::byte* base, std::uint64_t size_bytes) noexcept = 0;
  /// The same for all memory that the calling thread, and threads which it starts, touch first from now on. `moves`:
  /// the process's existing pages are moved there too.
  virtual void bind_thread(bool moves) noexcept = 0;
  /// Ends the binding of the calling thread, which gets back the policy that it had before the binding was made.
  virtual void release_thread() noexcept = 0;
  /// Takes `samples` pages spread evenly over [base, base + size_bytes), and counts them by node, with the system's
  /// numbers; pages that were never touched are not counted. Empty: the system does not say.
  virtual std::map<std::uint32_t, std::uint64_t> locate(const std::byte* base, std::uint64_t size_bytes,
                                                        std::size_t samples) const noexcept = 0;
  /// The first call that the system refused, and why; empty: none so far.
  virtual std::string refusal() const = 0;
};

/// Binds the memory that the calling thread, and threads that it starts meanwhile, touch first. Null: changes nothing.
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
