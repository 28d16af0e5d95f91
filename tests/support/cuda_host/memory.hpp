#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tests/support/cuda_host/races.hpp"

namespace troupe::cuda::host {

enum class MemoryKind { device, pinned, registered };

/// In the last page of memory that other processes can open; they look whether it is still there.
struct SharedState {
  std::atomic<std::uint32_t> freed;
  std::array<std::atomic<std::int32_t>, 64> openers;  // processes that have it open; 0: none
};

/// Memory that the driver knows. Its record stays when it is freed, so that later uses are told from unknown addresses.
struct Allocation {
  Range range;
  MemoryKind kind = MemoryKind::device;
  int device = -1;         // where it lies; -1: on the host
  std::uint64_t pool = 0;  // number of the pool that gave it; 0: none
  PlacePtr allocated;
  PlacePtr freeing;  // the call that frees it has been made; a stream may have to come to it
  bool freed = false;
  int file = -1;          // memory that other processes can open
  bool imported = false;  // opened here, of another process
  SharedState* shared = nullptr;
  std::string text() const;
  /// Another process that lives and has it open; 0: none.
  int opener() const;
};
using AllocationPtr = std::shared_ptr<Allocation>;

/// All memory that streams may use. Device memory has two addresses, always `distance()` apart: the one that is handed
/// out, at which every access ends the process after a line on stderr, and the one at which streams' threads find the
/// bytes. Addresses are not used again, so an old one is always known as such. Guarded by Process::mutex, but for at().
class TROUPE_HOST_SHARED Memory {
 public:
  Memory();
  AllocationPtr allocate(int device, std::uint64_t size_bytes, const PlacePtr& place);
  /// In a file, which another process can open.
  AllocationPtr allocate_shared(int device, std::uint64_t size_bytes, const PlacePtr& place);
  /// `file` as allocate_shared made it; the call takes it over. Null: it cannot be mapped.
  AllocationPtr import(int device, int file, std::uint64_t size_bytes, const PlacePtr& place);
  AllocationPtr allocate_pinned(std::uint64_t size_bytes, const PlacePtr& place);
  AllocationPtr add_registered(Address begin, std::uint64_t size_bytes, const PlacePtr& place);
  /// From now on nobody may use it: the bytes are gone.
  void release(const AllocationPtr& allocation);

  /// What `address` lies in, freed or not; null: nothing that the driver knows.
  AllocationPtr find(Address address) const;
  /// Whether any byte of `range` is in something that is not freed.
  bool overlaps_live(Range range) const;
  const std::map<Address, AllocationPtr>& all() const noexcept { return allocations_; }

  /// Where streams' threads find what others know as `address`. Any thread.
  void* at(Address address) const noexcept {
    return reinterpret_cast<void*>(address - shown_ < kReserved ? address + distance() : address);
  }
  bool is_shown(Address address) const noexcept { return address - shown_ < kReserved; }
  bool is_hidden(Address address) const noexcept { return address - hidden_ < kReserved; }
  Address distance() const noexcept { return hidden_ - shown_; }

 private:
  static constexpr std::uint64_t kReserved = std::uint64_t{1} << 37;
  Range reserve(std::uint64_t size_bytes);
  AllocationPtr add(Range range, MemoryKind kind, int device, const PlacePtr& place);
  AllocationPtr map(int device, int file, std::uint64_t size_bytes, const PlacePtr& place);
  bool map_file(const AllocationPtr& allocation);
  void forget(Address begin, std::uint64_t size_bytes);

  Address shown_ = 0;
  Address hidden_ = 0;
  std::uint64_t used_ = 0;  // of the reserved addresses
  std::map<Address, AllocationPtr> allocations_;
};

/// From now on an access at an address of device memory by anybody but a stream's work is told before it ends the
/// process. Once in a process.
void watch_accesses();

/// What this thread runs, for watch_accesses.
extern thread_local const Place* running;

}  // namespace troupe::cuda::host
