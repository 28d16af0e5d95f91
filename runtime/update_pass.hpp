#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "runtime/error.hpp"
#include "runtime/stream.hpp"

namespace troupe {

/// What an update pass works on, as addresses of this process; `count` elements each.
struct UpdateAddresses {
  std::uint64_t count = 0;
  float* parameters = nullptr;
  std::uint16_t* half = nullptr;               // null: no bf16 image
  std::array<float*, kMaxStateSlots> state{};  // null beyond what the rule keeps
  UpdateJournal* journal = nullptr;            // null: the pass is not restartable
};

/// A moment in a pass at which a test may look or stop it.
enum class PassMoment : std::uint8_t { undo_copied, progress_published, half_of_block_computed, block_done };

/// Lets every pass run through, at no cost.
struct NoProbe {
  static constexpr bool kWatches = false;
  static constexpr bool go_on(PassMoment, std::uint64_t) noexcept { return true; }
};

namespace detail {

inline constexpr std::uint64_t kProgressBits = 24;

/// Copies one block between the arrays and its undo block, in either direction.
template <bool kRestore>
void copy_undo(const UpdateAddresses& at, std::uint64_t block, std::uint64_t first, std::uint64_t count) noexcept {
  constexpr std::uint64_t kElements = UpdateJournal::kBlockElements;
  const std::size_t arrays = 1 + (at.state[0] ? 1 : 0) + (at.state[1] ? 1 : 0);
  float* undo = reinterpret_cast<float*>(at.journal + 1) + (block % 2) * kElements * arrays;
  for (float* array : {at.parameters, at.state[0], at.state[1]}) {
    if (array == nullptr) continue;
    if constexpr (kRestore) {
      std::memcpy(array + first, undo, count * sizeof(float));
    } else {
      std::memcpy(undo, array + first, count * sizeof(float));
    }
    undo += kElements;
  }
}

/// Says that `done` blocks of update `number` are done. What was written before must be in memory before it, and what
/// comes after must stay behind: a process that dies has executed a prefix of its program, so holding back the
/// compiler is enough for a survivor that reads later.
inline void publish_progress(UpdateJournal& journal, std::uint64_t number, std::uint64_t done) noexcept {
  std::atomic_ref{journal.progress}.store(number << kProgressBits | (done + 1), std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace detail

/// Runs update number `number` (from 1, growing) over `at`, block by block; `apply(first, count)` does the arithmetic
/// for some elements in place: parameters, states and the bf16 image, each element by itself. With a journal, a pass
/// that ended at any instruction is finished by calling this again with the same arguments, in any thread or process; a
/// pass that was complete changes nothing. Returns false when the probe stopped it. Throws Error{corrupt} when the
/// journal tells of a later update or of blocks that do not exist, Error{invalid} for numbers that do not fit its word.
template <class Probe, class Apply>
bool run_update_pass(const UpdateAddresses& at, std::uint64_t number, Apply&& apply, Probe&& probe) {
  constexpr std::uint64_t kElements = UpdateJournal::kBlockElements;
  const std::uint64_t blocks = (at.count + kElements - 1) / kElements;
  std::uint64_t block = 0;
  bool redo = false;
  if (at.journal) {
    TROUPE_CHECK(number > 0 && number < (std::uint64_t{1} << 40) && blocks < (1U << detail::kProgressBits) - 1,
                 Code::invalid, "update ", number, " of a stripe of ", at.count,
                 " elements does not fit the journal: numbers count from 1 to 2^40, blocks to 2^24");
    const std::uint64_t progress = std::atomic_ref{at.journal->progress}.load(std::memory_order_acquire);
    const std::uint64_t found = progress >> detail::kProgressBits;
    const std::uint64_t done = (progress & ((1U << detail::kProgressBits) - 1)) - 1;
    TROUPE_CHECK(found <= number && (found < number || done <= blocks), Code::corrupt, "update ", number,
                 ": the journal tells of update ", found, " with ", done, " of ", blocks, " blocks done");
    if (found == number) {
      block = done;
      redo = true;
    }
  }
  for (; block < blocks; ++block) {
    const std::uint64_t first = block * kElements;
    const std::uint64_t count = at.count - first < kElements ? at.count - first : kElements;
    if (at.journal) {
      if (redo) {
        detail::copy_undo<true>(at, block, first, count);
        redo = false;
      } else {
        detail::copy_undo<false>(at, block, first, count);
        if (!probe.go_on(PassMoment::undo_copied, block)) return false;
        detail::publish_progress(*at.journal, number, block);
      }
      if (!probe.go_on(PassMoment::progress_published, block)) return false;
    }
    if constexpr (std::remove_reference_t<Probe>::kWatches) {
      apply(first, count / 2);
      if (!probe.go_on(PassMoment::half_of_block_computed, block)) return false;
      apply(first + count / 2, count - count / 2);
    } else {
      apply(first, count);
    }
    if (!probe.go_on(PassMoment::block_done, block)) return false;
  }
  if (at.journal) detail::publish_progress(*at.journal, number, blocks);
  return true;
}

}  // namespace troupe
