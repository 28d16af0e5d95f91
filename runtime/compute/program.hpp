#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>

namespace troupe {

/// Work of one form that a stream has been given once and does again as one piece: which operations, on which memory,
/// in which order. What differs from one time to the next (points' values, a rule's constants and the number of its
/// update, rows, the places of a batch and of a step's sums) it reads from a step block: words in memory that the
/// device reads, in the order in which the work was recorded.
class Program {
 public:
  virtual ~Program() = default;
  /// Whether some of its work is not done yet. Any thread.
  virtual bool busy() const noexcept = 0;
};

/// The programs of work that comes again and again on one stream, in a few forms: a step with a round and one without,
/// a first step whose waits are over from the start. The forms that were used last are kept. Must be destroyed after
/// the stream, which may still read a piece of work whose last point is reached. Threads: as the stream.
class Programs {
 public:
  static constexpr std::size_t kKept = 16;

  /// The first that fits, of those used last first; null: none does.
  template <class Fits>
  Program* find(Fits&& fits) {
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const auto& one) { return fits(*one); });
    if (found == kept_.end()) return nullptr;
    kept_.splice(kept_.begin(), kept_, found);
    return kept_.front().get();
  }
  /// Work was one piece.
  void count_replay() noexcept { ++replayed_; }
  /// Of work that none fitted. The one that was not used for longest goes, unless it is busy: then this one does.
  void add(std::unique_ptr<Program> program) {
    ++recorded_;
    if (kept_.size() == kKept) {
      if (kept_.back()->busy()) return;
      kept_.pop_back();
    }
    kept_.push_front(std::move(program));
  }

  /// How many times work was one piece, and how many times it was not.
  std::uint64_t replayed() const noexcept { return replayed_; }
  std::uint64_t recorded() const noexcept { return recorded_; }

 private:
  std::list<std::unique_ptr<Program>> kept_;
  std::uint64_t replayed_ = 0;
  std::uint64_t recorded_ = 0;
};

}  // namespace troupe
