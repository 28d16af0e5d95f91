#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace troupe {

// XXH3 with 64 bits, the checksum of all that checkpoints hold, at the speed of memory: with the widest vectors of the
// processor it runs on, where libxxhash was built to choose them.

std::uint64_t xxh3(std::span<const std::byte> bytes) noexcept;

/// The same of bytes that come piece by piece. Threads: one.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(const Xxh3&) = delete;
  Xxh3& operator=(const Xxh3&) = delete;

  void add(std::span<const std::byte> bytes) noexcept;
  /// Of all that was added.
  std::uint64_t value() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe
