// How a view is retired after the same step at all ranks, and the state from which the next one continues.

#include "apps/session/view.hpp"

namespace troupe {
namespace {

/// More arenas than a view of one rank, with those of its node, ever names.
constexpr std::uint32_t kArenasOfAView = 8;

}  // namespace

/// The device actor continues where the previous view's ended, and its own progress is kept when the view is retired.
void View::keep_progress(DeviceParts& device) {
  if (before_) device.from = before_->device;
  device.rebuild_refusal = [this] { return rebuild_refusal(); };
  device.retired = [this](DeviceProgress progress) { left_->device = std::move(progress); };
}

/// Called on the device actor's thread.
std::string View::rebuild_refusal() const {
  if (owned_)
    return "the app owns the loop of this session, and works on memory of this view: end the session and start another "
           "one in the same group";
  if (tensors_given_)
    return "the app has asked for tensors(), whose memory belongs to this view: a session that is to be rebuilt must "
           "leave them alone";
  if (!settings().update_log.empty() || !settings().update_replay.empty())
    return "update.log and update.replay are about one view: leave them out";
  if (space_.arenas_left() < kArenasOfAView)
    return "this process has named nearly as many arenas as it can: start it again from a checkpoint";
  return {};
}

/// All ranks have committed the view's last step and know that the others have. Therefore no rank waits for this rank's
/// streams any more, and the state that they left is final. The lanes must finish sending first, since communicators
/// that end by abort() do not check that.
std::unique_ptr<ViewState> View::hand_over() {
  Blocking blocking = Blocking::on_thread("session");
  TROUPE_CHECK(retired_ && left_ != nullptr, Code::invalid, "this view was not retired, or has handed over already");
  drain(blocking, job_.group(), *lane_resources_, Deadline::after(settings().faults.exchange));
  take_down(blocking);
  left_->steps = so_far_->result.total.steps;
  left_->samples = schedule_.samples_before({left_->steps});
  // The shares hold from the next view's first step on, whatever its batches are.
  if (auto& shares = so_far_->shares_measured) {
    const Step first{left_->steps};
    shares = LedgerSpan{first, rows_of(*shares, first, schedule_, joined_.plan.range)};
  }
  left_->memory = KeptMemory(*copies_, joined_.plan, memory_, holds_parameters());
  for (const auto& exchange : work_.exchanges) left_->exchanges.push_back(exchange->hand_over());
  left_->start = places_[0].start;
  left_->start.folder.clear();
  left_->start.id = {.number = 0, .steps = left_->steps};
  left_->start.first_number = left_->device.next_number;
  left_->first_run = first_run_;
  left_->so_far = so_far_;
  return std::move(left_);
}

ViewRemains View::remains() { return {view_, std::move(lane_resources_), std::move(arenas_)}; }

}  // namespace troupe
