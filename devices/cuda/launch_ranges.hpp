#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/trace.hpp"

namespace troupe::cuda {

/// The ranges of launches that are collected now and made later, for a profiler.
class LaunchRanges {
  struct Mark {
    std::size_t launch;
    std::string text;  // empty: the newest range ends
  };

 public:
  void clear() noexcept { marks_.clear(); }
  /// Before launch number `launch`, from 0.
  void begin(std::size_t launch, std::string text) { marks_.push_back({launch, std::move(text)}); }
  void end(std::size_t launch) { marks_.push_back({launch, {}}); }

  /// Tells `listener` of them while the launches are made; where a launch throws, they end.
  class Teller {
   public:
    Teller(const LaunchRanges& ranges, RangeListener* listener) noexcept : marks_(ranges.marks_), listener_(listener) {}
    ~Teller() {
      for (; open_ != 0; --open_) listener_->end_range();
    }
    Teller(const Teller&) = delete;
    Teller& operator=(const Teller&) = delete;

    /// All that begins or ends before the launch.
    void come_to(std::size_t launch) noexcept {
      for (; next_ < marks_.size() && marks_[next_].launch <= launch; ++next_) tell(marks_[next_]);
    }

   private:
    void tell(const Mark& mark) noexcept {
      if (mark.text.empty()) {
        listener_->end_range();
        --open_;
      } else {
        listener_->begin_range(mark.text.c_str());
        ++open_;
      }
    }

    const std::vector<Mark>& marks_;
    RangeListener* const listener_;
    std::size_t next_ = 0;
    std::size_t open_ = 0;
  };

 private:
  std::vector<Mark> marks_;
};

}  // namespace troupe::cuda
