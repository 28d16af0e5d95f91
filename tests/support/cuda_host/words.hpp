#pragma once

#include <deque>
#include <map>

#include "tests/support/cuda_host/races.hpp"

namespace troupe::cuda::host {

/// (int64)(value - wanted) >= 0, as streams compare.
inline bool reached(std::uint64_t value, std::uint64_t wanted) noexcept {
  return static_cast<std::int64_t>(value - wanted) >= 0;
}

/// Words in memory by which streams, kernels and the CPU wait for each other: who wrote which value, and what had
/// happened before that. Guarded by Process::mutex.
class Words {
 public:
  /// A kernel may write the word from now on, until it ends(): whoever sees what it has written waits for that before
  /// it asks what is known.
  void begins(Address word) { ++being_written_[word]; }
  void ends(Address word);
  bool is_being_written(Address word) const { return being_written_.contains(word); }
  bool is_any_being_written() const { return !being_written_.empty(); }
  /// `clock` has written `value`; `for_cpu`: the CPU can read the word.
  void released(Address word, std::uint64_t value, const Clock& clock, bool for_cpu);
  /// What a waiter knows that has seen `value` there: the writer's clock, or the CPU's where no stream wrote it.
  void acquired(Address word, std::uint64_t value, const Clock& cpu, Clock& waiter);
  /// The CPU reads words without telling anybody: it knows what the words show by now.
  void seen_by_cpu(Clock& cpu);
  void forget(Range range);

 private:
  struct Write {
    std::uint64_t value = 0;
    Clock clock;
    bool seen = false;  // by the CPU, or never to be
  };
  static constexpr std::size_t kRemembered = 64;
  std::map<Address, std::deque<Write>> writes_;  // of a word, oldest first
  std::map<Address, unsigned> being_written_;    // by how many kernels
};

}  // namespace troupe::cuda::host
