#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "actors/device_actor.hpp"

namespace troupe::detail {

/// When a device copies its rank's part of the state for a checkpoint. At all ranks alike: there is memory for one
/// copy, and a save that falls due while any rank still writes its last one is left out, as the ranks' votes tell.
class DeviceSaves {
 public:
  void begin(const DeviceParts& parts);

  /// Whether a save is wanted after `step`. Where ranks do not know each other's votes it is made, and `step` waits
  /// until the copy before it is written.
  static bool is_wanted(const DeviceParts& parts, Step step);
  /// Whether a checkpoint of the state after `step` falls due by the number of steps alone.
  static bool is_due(const DeviceParts& parts, Step step);
  /// `step` is enqueued: whether a copy of the state after it is made. Saves wait for the end of a block: what goes on
  /// from there goes on as if nothing had been.
  bool follows(const DeviceParts& parts, Step step);
  /// Copies the state after `step` on the stream, so that the copy is of one moment, and lets `self` be told.
  void enqueue(const DeviceActor& self, const DeviceParts& parts, Step step);

  /// The copy is made; it is told to be once its step is committed.
  void copied(const SnapshotReached& reached) { early_ = reached; }
  /// What is to be told when `committed` says that its step is committed; nothing: there is no such copy.
  template <class IsCommitted>
  std::optional<SnapshotTaken> take_copied(IsCommitted&& committed) {
    if (!early_ || !committed(early_->step)) return {};
    copying_ = false;
    SnapshotTaken taken{early_->step, early_->number, early_->updates, early_->evaluated, early_->policies};
    early_.reset();
    return taken;
  }
  /// The copy is written, or could not be.
  void written() noexcept { saving_ = false; }
  /// Of `step` it was counted whether any rank was still writing when it began.
  void counted(Step step, bool any_saving) { votes_.push_back({step, any_saving}); }

  /// Whether a copy is being made on the stream.
  bool copying() const noexcept { return copying_; }
  /// Whether a copy is not made, or not written yet.
  bool saving() const noexcept { return saving_; }
  /// The last step that was, or is being, saved.
  const std::optional<Step>& saved() const noexcept { return saved_; }
  std::uint32_t next_number() const noexcept { return next_number_; }

 private:
  struct Vote {
    Step step;
    bool saving = false;  // a rank was still writing when it began
  };
  bool may_follow(Step step);

  std::uint32_t next_number_ = 1;
  std::optional<Step> saved_;
  bool copying_ = false;
  bool saving_ = false;
  bool due_ = false;                      // at the next step after which the state is consistent
  std::optional<Step> evaluated_;         // since the state was consistent, the last one
  std::deque<Vote> votes_;                // that were counted, oldest first
  std::optional<SnapshotReached> early_;  // before it was heard that its step is committed
};

}  // namespace troupe::detail
