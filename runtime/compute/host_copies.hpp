#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>

#include "runtime/compute/device.hpp"

namespace troupe {

/// Brings numbers from the host to a rank's memory and back, outside of steps. Where the host reaches the memory, it is
/// read and written where it lies; otherwise a stream of the device's copies it through pinned memory. Threads: one
/// caller at a time.
class HostCopies {
 public:
  /// `buffer` is the id of the pinned memory, which is taken when it is needed. All outlive this object.
  HostCopies(Device& device, AddressSpace& space, ArenaId buffer, std::chrono::milliseconds within)
      : device_(device), space_(space), id_(buffer), within_(within) {}

  /// `fill` writes all of what `to` is to hold. Throws Error as streams end, and what `fill` throws.
  void write(const Memory& to, const std::function<void(std::span<std::byte>)>& fill);
  /// `use` reads what `from` holds.
  void read(const Memory& from, const std::function<void(std::span<const std::byte>)>& use);

 private:
  static constexpr std::uint64_t kBufferBytes = std::uint64_t{4} << 20;

  bool reaches(const Memory& memory) const { return space_.kind(memory.arena) != MemoryKind::device; }
  template <class Piece>
  void in_pieces(const Memory& far, Piece&& piece);
  void finish(Stream& stream, Deadline deadline);

  Device& device_;
  AddressSpace& space_;
  const ArenaId id_;
  const std::chrono::milliseconds within_;
  Memory buffer_;  // empty: none was needed so far
};

/// Bytes as numbers.
template <class T>
std::span<T> numbers(std::span<std::byte> bytes) noexcept {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}
template <class T>
std::span<const T> numbers(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

}  // namespace troupe
