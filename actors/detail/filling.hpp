#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/batch_cursor.hpp"
#include "runtime/data/source.hpp"

namespace troupe::detail {

/// A batch that a source was asked for, and what keeps its place meanwhile. Shared by who asked and by the source,
/// which may still write when the other one has ended.
template <class Place>
class Filling final : public FillDone {
 public:
  /// `tell` is called on the source's thread when the batch is filled after returned().
  Filling(BatchHead its_head, std::vector<Sample> its_samples, Place its_place, std::function<void()> tell)
      : head(std::move(its_head)),
        samples(std::move(its_samples)),
        place(std::move(its_place)),
        tell_(std::move(tell)) {}

  void filled(const Status& status) noexcept override {
    status_ = status;
    if (state_.exchange(State::done, std::memory_order_acq_rel) == State::under_way) tell_();
  }
  /// Source::fill has returned. Whether the batch was filled by then.
  bool returned() noexcept {
    State expected = State::asked;
    return !state_.compare_exchange_strong(expected, State::under_way, std::memory_order_acq_rel);
  }
  bool done() const noexcept { return state_.load(std::memory_order_acquire) == State::done; }
  /// Throws what went wrong; of a batch that is done.
  void check() const {
    if (!status_.ok()) fail(status_.code(), std::string{status_.text()});
  }

  BatchHead head;
  const std::vector<Sample> samples;
  Place place;

 private:
  enum class State : std::uint8_t { asked, under_way, done };
  const std::function<void()> tell_;
  std::atomic<State> state_{State::asked};
  Status status_;  // written before it is done
};

}  // namespace troupe::detail
