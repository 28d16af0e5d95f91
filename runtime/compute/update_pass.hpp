#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/compute/stream.hpp"

namespace troupe {

/// The memory of an update pass, as addresses of this process; `count` elements each.
struct UpdateAddresses {
  std::uint64_t count = 0;
  float* parameters = nullptr;
  std::uint16_t* half = nullptr;               // null: no copy in half precision
  std::array<float*, kMaxStateSlots> state{};  // null for slots that the rule does not use
  UpdateJournal* journal = nullptr;            // null: the pass is not restartable
  std::uint64_t first_element = 0;             // element 0 of the arrays, counted in the group
  std::span<const Layout::Entry> no_decay{};   // as in StripeMemory
  std::span<const Layout::Entry> scaled{};     // likewise
  TensorSquares* squares = nullptr;            // one for each of `scaled`
  /// Whether both mean the same memory.
  friend bool operator==(const UpdateAddresses& a, const UpdateAddresses& b) noexcept {
    return a.count == b.count && a.parameters == b.parameters && a.half == b.half && a.state == b.state &&
           a.journal == b.journal && a.first_element == b.first_element && a.no_decay.data() == b.no_decay.data() &&
           a.no_decay.size() == b.no_decay.size() && a.scaled.data() == b.scaled.data() &&
           a.scaled.size() == b.scaled.size() && a.squares == b.squares;
  }
};

/// The address of memory that must have `size_bytes`; otherwise throws Error{invalid} that says so of `what`.
using AddressOf = std::function<std::byte*(const Memory& memory, std::uint64_t size_bytes, const char* what)>;
/// The addresses of a stripe for an update by `rule`. Throws Error as `address` does, Error{invalid} for a journal that
/// is too small, Error{unsupported} if the copy in 16 bits is not bf16.
UpdateAddresses addresses_of(const RuleStep& rule, const StripeMemory& stripe, const AddressOf& address);

/// The constants for elements without weight decay.
inline RuleStep without_decay(RuleStep rule) noexcept {
  rule.decay = 0;
  return rule;
}

/// Calls `part(first, count, place)` for the pieces of the elements [first, first + count) of `at`, in order. `place`
/// is the index of the range of `ranges` (of the group's elements, ascending) to which a piece belongs, or kNoRange.
inline constexpr std::size_t kNoRange = ~std::size_t{0};
template <class Part>
void for_each_range(const UpdateAddresses& at, std::span<const Layout::Entry> ranges, std::uint64_t first,
                    std::uint64_t count, Part&& part) {
  const std::uint64_t end = first + count;
  const auto ends_before = [](const Layout::Entry& range, std::uint64_t element) {
    return range.first + range.count <= element;
  };
  auto range = std::lower_bound(ranges.begin(), ranges.end(), at.first_element + first, ends_before);
  while (first < end) {
    const bool is_left = range == ranges.end() || range->first >= at.first_element + end;
    if (is_left) return part(first, end - first, kNoRange);
    const std::uint64_t begins = range->first > at.first_element + first ? range->first - at.first_element : first;
    if (begins > first) part(first, begins - first, kNoRange);
    const std::uint64_t ends = std::min(end, range->first + range->count - at.first_element);
    part(begins, ends - begins, static_cast<std::size_t>(range - ranges.begin()));
    first = ends;
    ++range;
  }
}

/// Calls `part(first, count, rule)` for the pieces of the elements [first, first + count) of `at`, in order, with the
/// constants for that piece.
template <class Part>
void for_each_piece(const UpdateAddresses& at, const RuleStep& rule, std::uint64_t first, std::uint64_t count,
                    Part&& part) {
  for_each_range(at, at.no_decay, first, count, [&](std::uint64_t begin, std::uint64_t some, std::size_t undecayed) {
    const RuleStep here = undecayed == kNoRange ? rule : without_decay(rule);
    for_each_range(at, at.scaled, begin, some, [&](std::uint64_t from, std::uint64_t piece, std::size_t tensor) {
      if (tensor == kNoRange) return part(from, piece, here);
      RuleStep scaled = here;
      scaled.rate *= trust_ratio(here, at.squares[tensor]);
      part(from, piece, std::as_const(scaled));
    });
  });
}

/// A moment in a pass at which a test may inspect or stop it.
enum class PassMoment : std::uint8_t { undo_copied, progress_published, half_of_block_computed, block_done };

/// Lets every pass run without interruption, at no cost.
struct NoProbe {
  static constexpr bool kWatches = false;
  static constexpr bool go_on(PassMoment, std::uint64_t) noexcept { return true; }
};

namespace detail {

// What makes a pass restartable. At every instruction:
// - the journal's word says (update, number of blocks that are done), or an earlier update;
// - for the block after those, the undo copy that its parity selects is complete;
// - all blocks before that block have their new values, all blocks after it their old ones.
// So a survivor restores that block from its copy, and computes it and the rest: each element once, from its old value.
// Two undo copies, chosen by parity: while a block is computed and may need its copy, the next block's copy is written.
// A block is copied before the word names it, and computed after that. If the word came before the complete copy, half
// a block would be restored; if it came after the first write, elements would be computed twice.

inline constexpr std::uint64_t kProgressBits = 24;

/// The undo copy of block `block`, which has `count` elements from `first` on.
inline UndoCopy undo_of(const UpdateAddresses& at, std::uint64_t block, std::uint64_t first,
                        std::uint64_t count) noexcept {
  constexpr std::uint64_t kElements = UpdateJournal::kBlockElements;
  UndoCopy undo{.count = count};
  undo.from[0] = at.parameters;
  std::copy(at.state.begin(), at.state.end(), undo.from.begin() + 1);
  const auto arrays =
      static_cast<std::size_t>(undo.from.size() - std::count(undo.from.begin(), undo.from.end(), nullptr));
  float* to = reinterpret_cast<float*>(at.journal + 1) + (block % 2) * kElements * arrays;
  for (std::size_t array = 0; array < undo.from.size(); ++array) {
    if (!undo.from[array]) continue;
    undo.from[array] += first;
    undo.to[array] = to;
    to += kElements;
  }
  return undo;
}

inline void restore(const UpdateAddresses& at, std::uint64_t first, const UndoCopy& undo) noexcept {
  std::memcpy(at.parameters + first, undo.to[0], undo.count * sizeof(float));
  for (std::size_t slot = 0; slot < at.state.size(); ++slot) {
    if (at.state[slot]) std::memcpy(at.state[slot] + first, undo.to[1 + slot], undo.count * sizeof(float));
  }
}

/// Publishes that `done` blocks of update `number` are done. Earlier writes must be in memory before this word, and
/// later writes after it. A process that dies has executed a prefix of its program, so it is enough to keep the
/// compiler from reordering, for a survivor that reads later.
inline void publish_progress(UpdateJournal& journal, std::uint64_t number, std::uint64_t done) noexcept {
  std::atomic_ref{journal.progress}.store(number << kProgressBits | (done + 1), std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

/// How many blocks of update `number` are done according to the journal; empty if the update has not begun.
inline std::optional<std::uint64_t> blocks_done(UpdateJournal& journal, std::uint64_t number, std::uint64_t blocks) {
  TROUPE_CHECK(number > 0 && number < (std::uint64_t{1} << 40) && blocks < (1U << kProgressBits) - 1, Code::invalid,
               "update ", number, " of ", blocks,
               " blocks does not fit the journal: numbers count from 1 to 2^40, blocks to 2^24");
  const std::uint64_t progress = std::atomic_ref{journal.progress}.load(std::memory_order_acquire);
  const std::uint64_t found = progress >> kProgressBits;
  if (found < number) return std::nullopt;
  const std::uint64_t done = (progress & ((1U << kProgressBits) - 1)) - 1;
  TROUPE_CHECK(found == number && done <= blocks, Code::corrupt, "update ", number, ": the journal tells of update ",
               found, " with ", done, " of ", blocks, " blocks done");
  return done;
}

}  // namespace detail

/// Runs update number `number` (from 1, ascending) over `at`, block by block. `apply(first, count)` computes some
/// elements in place: parameters, states and the copy in half precision, each element by itself. With a journal, a pass
/// that ended at any instruction is completed by calling this again with the same arguments, in any thread or process;
/// if the pass was complete, nothing changes. Returns false if the probe stopped the pass. Throws Error{corrupt} if the
/// journal names a later update or blocks that do not exist, Error{invalid} for numbers that do not fit into its word.
/// While a block is computed, the undo copy of the next one is written. An `apply(first, count, undo)` calls
/// undo.copy() itself, interleaved with its arithmetic as it likes, because the arithmetic leaves the memory ports
/// idle.
template <class Probe, class Apply>
bool run_update_pass(const UpdateAddresses& at, std::uint64_t number, Apply&& apply, Probe&& probe) {
  constexpr std::uint64_t kElements = UpdateJournal::kBlockElements;
  const std::uint64_t blocks = (at.count + kElements - 1) / kElements;
  const auto size_of = [&](std::uint64_t block) { return std::min(kElements, at.count - block * kElements); };
  const auto undo_of = [&](std::uint64_t block) {
    return at.journal && block < blocks ? detail::undo_of(at, block, block * kElements, size_of(block)) : UndoCopy{};
  };
  const auto compute = [&](std::uint64_t first, std::uint64_t count, const UndoCopy& undo) {
    if constexpr (std::is_invocable_v<Apply&, std::uint64_t, std::uint64_t, const UndoCopy&>) {
      apply(first, count, undo);
    } else {
      undo.copy();
      apply(first, count);
    }
  };
  std::uint64_t block = 0;
  if (at.journal) {
    const std::optional<std::uint64_t> done = detail::blocks_done(*at.journal, number, blocks);
    block = done.value_or(0);
    if (done && block < blocks) {
      detail::restore(at, block * kElements, undo_of(block));  // the block may be partly computed
    } else {
      undo_of(block).copy();  // the first block's; later copies are made while the previous block is computed
    }
  }
  for (; block < blocks; ++block) {
    const std::uint64_t first = block * kElements, count = size_of(block);
    if (at.journal) {
      if (!probe.go_on(PassMoment::undo_copied, block)) return false;
      detail::publish_progress(*at.journal, number, block);
      if (!probe.go_on(PassMoment::progress_published, block)) return false;
    }
    const UndoCopy next = undo_of(block + 1);
    if constexpr (std::remove_reference_t<Probe>::kWatches) {
      compute(first, count / 2, next.part(0, count / 2));
      if (!probe.go_on(PassMoment::half_of_block_computed, block)) return false;
      compute(first + count / 2, count - count / 2, next.part(count / 2, kElements));
    } else {
      compute(first, count, next);
    }
    if (!probe.go_on(PassMoment::block_done, block)) return false;
  }
  if (at.journal) detail::publish_progress(*at.journal, number, blocks);  // a second call then changes nothing
  return true;
}

}  // namespace troupe
