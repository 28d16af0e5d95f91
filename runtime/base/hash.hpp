#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace troupe {

// XXH3 with 64 bits: the checksum of everything in checkpoints. It runs at the speed of memory if libxxhash was built
// to choose the widest vectors that the processor has.

std::uint64_t xxh3(std::span<const std::byte> bytes) noexcept;

/// The same for bytes that arrive piece by piece. Threads: one.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(const Xxh3&) = delete;
  Xxh3& operator=(const Xxh3&) = delete;

  void add(std::span<const std::byte> bytes) noexcept;
  /// The hash of all bytes added so far.
  std::uint64_t value() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe
