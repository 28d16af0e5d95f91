#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "devices/cuda/gpu.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe::cuda {

/// Where a GPU finds the memory of an address space. Memory of the host is made known to the driver when it is prepared
/// or first used, all of its arena at once. Threads: any.
class MemoryMap {
 public:
  /// `space` outlives the map; the maps of other devices of the process read it, too.
  MemoryMap(std::shared_ptr<const Gpu> gpu, AddressSpace& space) : gpu_(std::move(gpu)), space_(space) {}
  ~MemoryMap();
  MemoryMap(const MemoryMap&) = delete;
  MemoryMap& operator=(const MemoryMap&) = delete;

  /// Throws as AddressSpace::address, and Error{out_of_memory} when the system locks no more pages.
  std::byte* address(const Memory& memory);
  /// Of memory with `size_bytes`; `what` says in an error what it is. Throws Error{invalid} for another size.
  template <class T>
  T* address_of(const Memory& memory, std::uint64_t size_bytes, const char* what) {
    TROUPE_CHECK(memory.size_bytes == size_bytes, Code::invalid, what, " has ", memory.size_bytes, " bytes instead of ",
                 size_bytes);
    return reinterpret_cast<T*>(address(memory));
  }
  /// Makes the arena known now. One that the address space does not have yet is left out.
  void prepare(ArenaId id);
  /// The word of a line; null: it lies in no memory that a GPU could reach.
  std::uint64_t* word(TimelineId line);

 private:
  class Registrations;

  static Registrations& registrations();
  void reach(const Region& region);
  [[noreturn]] void fail_to_reach(const Region& region, Result result) const;
  bool has(ArenaId arena, const std::byte* base) const noexcept;

  std::shared_ptr<const Gpu> gpu_;
  AddressSpace& space_;
  std::mutex mutex_;                                 // guards what follows
  std::unordered_map<ArenaId, std::byte*> reached_;  // arenas of the host, with their addresses
};

}  // namespace troupe::cuda
