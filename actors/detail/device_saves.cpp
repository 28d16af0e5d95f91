#include "actors/detail/device_saves.hpp"

#include <utility>

namespace troupe::detail {

void DeviceSaves::begin(const DeviceParts& parts) {
  if (parts.saves) next_number_ = parts.saves->first_number;
}

bool DeviceSaves::is_due(const DeviceParts& parts, Step step) const {
  return due_ || (parts.saves && parts.saves->every_steps != 0 && (step.value + 1) % parts.saves->every_steps == 0);
}

bool DeviceSaves::is_wanted(const DeviceParts& parts, Step step) const {
  if (!parts.saves || parts.schedule.is_last(step)) return false;
  return is_due(parts, step) || (parts.saves->evaluated && parts.schedule.evaluates(step));
}

/// Whether all ranks have memory for a copy after `step`. The votes of the step kStepsAhead before it are the newest
/// that every rank has certainly counted. If the last save began after these votes, its copy may still be in use.
bool DeviceSaves::may_follow(Step step) {
  std::optional<Vote> counted;
  while (!votes_.empty() && votes_.front().step.value + kStepsAhead <= step.value) {
    counted = votes_.front();
    votes_.pop_front();
  }
  if (counted) votes_.push_front(*counted);  // kept until a newer one replaces it
  if (saved_ && (!counted || counted->step <= *saved_)) return false;
  return !counted || !counted->saving;
}

bool DeviceSaves::follows(const DeviceParts& parts, Step step) {
  if (!parts.saves) return false;
  if (parts.schedule.evaluates(step)) evaluated_ = step;
  if (parts.schedule.is_last(step)) return false;
  due_ = is_wanted(parts, step);
  if (!parts.exchange.is_consistent()) return false;
  const bool due = std::exchange(due_, false);  // a save that is left out is not made later
  const bool saves = due && (!parts.exchange.totals_are_common() || may_follow(step));
  if (!saves) evaluated_.reset();
  return saves;
}

void DeviceSaves::enqueue(const DeviceActor& self, const DeviceParts& parts, Step step) {
  parts.exchange.join(parts.stream);
  for (const SnapshotPart& part : parts.saves->parts) parts.stream.copy(part.to, part.from);
  parts.exchange.copy_loss_scale(parts.stream);
  parts.snapshots.send_at(parts.stream.mark(), self,
                          SnapshotReached{step,
                                          next_number_++,
                                          parts.exchange.updates(),
                                          {},
                                          std::exchange(evaluated_, {}),
                                          parts.exchange.policies()});
  saved_ = step;
  copying_ = saving_ = true;
}

}  // namespace troupe::detail
