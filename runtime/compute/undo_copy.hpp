#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/compute/rules/rule.hpp"

namespace troupe {

/// The journal of a restartable update pass, at the start of StripeMemory::journal; the undo blocks follow it.
/// `progress` is (update number << 24 | blocks done + 1); undo block (b mod 2) has the old content of block b.
struct alignas(64) UpdateJournal {
  static constexpr std::uint64_t kBlockElements = 1024;  // 4 KiB of f32
  std::uint64_t progress = 0;
  std::array<std::uint64_t, 7> reserved{};
};
/// Bytes of a journal: the word, and two undo blocks of parameters and `state_slots` states.
constexpr std::uint64_t journal_bytes(std::size_t state_slots) noexcept {
  return sizeof(UpdateJournal) + 2 * UpdateJournal::kBlockElements * sizeof(float) * (1 + state_slots);
}

/// A copy of a part of a stripe into an undo block: parameters and states; null for arrays that there are not.
struct UndoCopy {
  std::array<const float*, 1 + kMaxStateSlots> from{};
  std::array<float*, 1 + kMaxStateSlots> to{};
  std::uint64_t count = 0;  // elements; 0: nothing to copy

  void copy() const noexcept {
    for (std::size_t array = 0; count != 0 && array < from.size(); ++array) {
      if (from[array]) std::memcpy(to[array], from[array], count * sizeof(float));
    }
  }
  /// Elements [first, first + size), or as many of them as there are.
  UndoCopy part(std::uint64_t first, std::uint64_t size) const noexcept {
    if (first >= count) return {};
    UndoCopy cut{.count = size < count - first ? size : count - first};
    for (std::size_t array = 0; array < from.size(); ++array) {
      if (from[array]) cut.from[array] = from[array] + first, cut.to[array] = to[array] + first;
    }
    return cut;
  }
};

}  // namespace troupe
