#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

namespace troupe::remote {

/// Which of the numbers 0, 1, 2, ... have been handled, in any order. Only their lowest 32 bits are sent. Memory: a
/// node for each run of numbers after the first missing one.
class NumberSet {
 public:
  /// All smaller numbers have been handled.
  std::uint64_t next() const noexcept { return next_; }
  std::size_t runs() const noexcept { return runs_.size(); }

  /// The whole number for its lowest 32 bits, which have just arrived; nothing if it is below next().
  std::optional<std::uint64_t> whole(std::uint32_t low) const noexcept {
    const auto ahead = static_cast<std::int32_t>(low - static_cast<std::uint32_t>(next_));
    if (ahead < 0) return {};
    return next_ + static_cast<std::uint32_t>(ahead);
  }

  /// False: it was handled before.
  bool add(std::uint64_t number) {
    if (number < next_) return false;
    if (number == next_ && runs_.empty()) {  // nearly always
      ++next_;
      return true;
    }
    const auto after = runs_.upper_bound(number);
    const auto before = after == runs_.begin() ? runs_.end() : std::prev(after);
    if (before != runs_.end() && number < before->second) return false;
    const bool joins_before = before != runs_.end() && before->second == number;
    const bool joins_after = after != runs_.end() && after->first == number + 1;
    const std::uint64_t end = joins_after ? after->second : number + 1;
    if (joins_after) runs_.erase(after);
    if (joins_before) {
      before->second = end;
    } else {
      runs_.emplace(number, end);
    }
    if (runs_.begin()->first == next_) {
      next_ = runs_.begin()->second;
      runs_.erase(runs_.begin());
    }
    return true;
  }

 private:
  std::uint64_t next_ = 0;
  std::map<std::uint64_t, std::uint64_t> runs_;  // from the first to the one after the last; never adjacent
};

}  // namespace troupe::remote
