#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/batch_cursor.hpp"
#include "runtime/data/source.hpp"

namespace troupe::detail {

/// A batch that a source was asked for, and the memory for it. Shared by the requester and the source, which may still
/// write after the requester has ended.
template <class Place>
class Filling final : public FillDone {
 public:
  /// `notify` is called on the source's thread when the batch is filled, unless returned() has returned true.
  Filling(BatchHead its_head, std::vector<Sample> its_samples, Place its_place, std::function<void()> notify)
      : head(std::move(its_head)),
        samples(std::move(its_samples)),
        place(std::move(its_place)),
        notify_(std::move(notify)) {}

  void filled(const Status& status) noexcept override {
    status_ = status;
    if (state_.exchange(State::done, std::memory_order_acq_rel) == State::in_progress) notify_();
  }
  /// Call it when Source::fill has returned. Returns whether the batch has been filled already.
  bool returned() noexcept {
    State expected = State::asked;
    return !state_.compare_exchange_strong(expected, State::in_progress, std::memory_order_acq_rel);
  }
  bool done() const noexcept { return state_.load(std::memory_order_acquire) == State::done; }
  /// Throws the error of a batch that is done, if there is one.
  void check() const {
    if (!status_.ok()) fail(status_.code(), std::string{status_.text()});
  }

  BatchHead head;
  const std::vector<Sample> samples;
  Place place;

 private:
  enum class State : std::uint8_t { asked, in_progress, done };
  const std::function<void()> notify_;
  std::atomic<State> state_{State::asked};
  Status status_;  // written before the batch is marked as done
};

}  // namespace troupe::detail
