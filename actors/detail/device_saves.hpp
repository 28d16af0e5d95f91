#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "actors/device_actor.hpp"

namespace troupe::detail {

/// Decides when a device copies its rank's part of the state for a checkpoint, in the same way at all ranks. There is
/// memory for one copy: a save is left out if any rank is still writing its last one, which the ranks' votes show.
class DeviceSaves {
 public:
  void begin(const DeviceParts& parts);

  /// Whether a save is wanted after `step`. If ranks do not know each other's votes it is always made, and `step` waits
  /// until the previous copy has been written.
  bool is_wanted(const DeviceParts& parts, Step step) const;
  /// Whether a checkpoint of the state after `step` is due: by the number of steps, or since the blocks of some groups
  /// had not ended when it was. Then the other groups must end their rounds with `step`, too, since all groups' blocks
  /// may never end with the same step by themselves.
  bool is_due(const DeviceParts& parts, Step step) const;
  /// Called when `step` is enqueued. Returns whether the state after it is copied. Saves wait for the end of a block,
  /// so that a run that resumes from it continues as if it had not been interrupted.
  bool follows(const DeviceParts& parts, Step step);
  /// Copies the state after `step` on the stream, so that all of the copy is from one moment; `self` gets
  /// SnapshotReached.
  void enqueue(const DeviceActor& self, const DeviceParts& parts, Step step);

  /// The copy was made; take_copied() returns it when its step is committed.
  void copied(const SnapshotReached& reached, const std::optional<LossScale>& scale) {
    early_ = reached;
    early_->loss_scale = scale;
  }
  /// The copy whose step is committed according to `is_committed`; nothing: there is none.
  template <class IsCommitted>
  std::optional<SnapshotTaken> take_copied(IsCommitted&& committed) {
    if (!early_ || !committed(early_->step)) return {};
    copying_ = false;
    SnapshotTaken taken{early_->step,      early_->number,   early_->updates,
                        early_->evaluated, early_->policies, early_->loss_scale};
    early_.reset();
    return taken;
  }
  /// The copy was written, or could not be.
  void written() noexcept { saving_ = false; }
  /// Whether any rank was still writing when `step` began, according to its votes.
  void counted(Step step, bool any_saving) { votes_.push_back({step, any_saving}); }

  /// Whether the stream is making a copy.
  bool copying() const noexcept { return copying_; }
  /// Whether a copy is being made or written.
  bool saving() const noexcept { return saving_; }
  /// The last step that was saved or is being saved.
  const std::optional<Step>& saved() const noexcept { return saved_; }
  std::uint32_t next_number() const noexcept { return next_number_; }

 private:
  struct Vote {
    Step step;
    bool saving = false;  // a rank was still writing when the step began
  };
  bool may_follow(Step step);

  std::uint32_t next_number_ = 1;
  std::optional<Step> saved_;
  bool copying_ = false;
  bool saving_ = false;
  bool due_ = false;                      // save after the next step that leaves a consistent state
  std::optional<Step> evaluated_;         // the last evaluated step since the last save
  std::deque<Vote> votes_;                // that were counted, oldest first
  std::optional<SnapshotReached> early_;  // copied before this actor knew that its step is committed
};

}  // namespace troupe::detail
