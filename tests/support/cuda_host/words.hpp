#pragma once

#include <deque>
#include <map>
#include <set>

#include "tests/support/cuda_host/races.hpp"

namespace troupe::cuda::host {

/// (int64)(value - wanted) >= 0, as streams compare.
inline bool reached(std::uint64_t value, std::uint64_t wanted) noexcept {
  return static_cast<std::int64_t>(value - wanted) >= 0;
}

/// The highest bit of a line's word, which the CPU sets in addition to the value that stands there, at any time: its
/// poison. Kernels compare values without it.
inline constexpr std::uint64_t kPoison = std::uint64_t{1} << 63;
inline std::uint64_t without_poison(std::uint64_t value) noexcept { return value & ~kPoison; }

/// Words in memory by which streams, kernels and the CPU wait for each other: who wrote which value, and what had
/// happened before that. Guarded by Process::mutex.
class Words {
 public:
  /// `clock` writes `value`; `for_cpu`: the CPU can read the word. Call it before the store: who sees the value must
  /// find the clock.
  void releases(Address word, std::uint64_t value, const Clock& clock, bool for_cpu);
  /// `clock` will write a value that only the writer knows, where `present` stands now. The number is for released().
  std::uint64_t will_release(Address word, std::uint64_t present, const Clock& clock, bool for_cpu);
  /// That writer is through, `value` stands there, and `clock` is all that the writer has come behind.
  void released(Address word, std::uint64_t number, std::uint64_t value, const Clock& clock);
  /// What a waiter knows that has seen `value` there: the writer's clock, and the CPU's where no stream wrote it, or
  /// the CPU has poisoned it.
  void acquired(Address word, std::uint64_t value, Clock& cpu, Clock& waiter);
  /// The CPU reads words without telling anybody: it knows what the words show by now.
  void seen_by_cpu(Clock& cpu);
  void forget(Range range);

 private:
  /// Invariant: a write is known from before its store on.
  struct Write {
    std::uint64_t number = 0;
    std::uint64_t value = 0;  // under way: what stood there before
    Clock clock;
    bool seen = false;  // by the CPU, or never to be
    bool under_way = false;
    /// Whether the store is done when the word is `now`.
    bool is_done(std::uint64_t now) const noexcept {
      return under_way ? without_poison(now) != without_poison(value)
                       : reached(without_poison(now), without_poison(value));
    }
  };
  std::uint64_t add(Address word, Write write);
  static constexpr std::size_t kRemembered = 64;
  std::uint64_t last_ = 0;
  std::map<Address, std::deque<Write>> writes_;  // of a word, oldest first
  std::set<Address> unseen_;                     // words with writes that are not seen: few
};

}  // namespace troupe::cuda::host
