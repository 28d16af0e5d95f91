#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "runtime/compute/device.hpp"

namespace troupe {

/// Copies numbers between the host and a rank's memory, outside of steps. Memory that the host can access is read
/// and written in place; otherwise a stream of the device copies it through pinned memory. Threads: one caller at a
/// time.
class HostCopies {
 public:
  /// `buffer` is the id of the pinned memory, which is allocated when it is first needed. All outlive this object.
  HostCopies(Device& device, AddressSpace& space, ArenaId buffer, std::chrono::milliseconds within)
      : device_(device), space_(space), id_(buffer), within_(within) {}

  /// Takes the pinned memory and a stream now and keeps them, so that copies can be made while other streams wait. After
  /// a copy that fails each has a stream of its own again.
  void prepare();
  /// `fill` writes the whole content for `to`. Throws the Error with which a stream ended, and any exception of `fill`.
  void write(const Memory& to, const std::function<void(std::span<std::byte>)>& fill);
  /// `use` reads the content of `from`.
  void read(const Memory& from, const std::function<void(std::span<const std::byte>)>& use);

 private:
  static constexpr std::uint64_t kBufferBytes = std::uint64_t{4} << 20;

  bool reaches(const Memory& memory) const { return space_.kind(memory.arena) != MemoryKind::device; }
  template <class Piece>
  void in_pieces(const Memory& far, Piece&& piece);
  void take_buffer();
  void finish(Stream& stream, Deadline deadline);

  Device& device_;
  AddressSpace& space_;
  const ArenaId id_;
  const std::chrono::milliseconds within_;
  Memory buffer_;                   // empty: not needed so far
  std::unique_ptr<Stream> stream_;  // null: each copy has one of its own
};

/// Bytes viewed as numbers.
template <class T>
std::span<T> numbers(std::span<std::byte> bytes) noexcept {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}
template <class T>
std::span<const T> numbers(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

}  // namespace troupe
