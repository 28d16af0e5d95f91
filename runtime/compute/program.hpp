#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>

namespace troupe {

/// Recorded work that a stream can run again as a whole: which operations, on which memory, in which order. The values
/// that differ from one run to the next (values of points, a rule's constants and the number of its update, rows, the
/// addresses of a batch and of a step's sums) are read from a step block: words in memory that the device reads, in the
/// order of recording.
class Program {
 public:
  virtual ~Program() = default;
  /// Whether some of its work is not completed yet. Any thread.
  virtual bool busy() const noexcept = 0;
};

/// The programs of work that a stream repeats in a few forms: a step with a round and one without, a first step whose
/// waits are already over. The most recently used forms are kept. Must be destroyed after the stream, which may still
/// read a program whose last point is reached. Threads: like the stream.
class Programs {
 public:
  static constexpr std::size_t kKept = 16;

  /// The first program that fits, the most recently used first; null: none fits.
  template <class Fits>
  Program* find(Fits&& fits) {
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const auto& one) { return fits(*one); });
    if (found == kept_.end()) return nullptr;
    kept_.splice(kept_.begin(), kept_, found);
    return kept_.front().get();
  }
  /// Call this when work was replayed.
  void count_replay() noexcept { ++replayed_; }
  /// Adds a new program. The least recently used one is removed, unless it is busy: then the new one is dropped.
  void add(std::unique_ptr<Program> program) {
    ++recorded_;
    if (kept_.size() == kKept) {
      if (kept_.back()->busy()) return;
      kept_.pop_back();
    }
    kept_.push_front(std::move(program));
  }

  /// How many times work was replayed, and how many times it was recorded.
  std::uint64_t replayed() const noexcept { return replayed_; }
  std::uint64_t recorded() const noexcept { return recorded_; }

 private:
  std::list<std::unique_ptr<Program>> kept_;
  std::uint64_t replayed_ = 0;
  std::uint64_t recorded_ = 0;
};

}  // namespace troupe
