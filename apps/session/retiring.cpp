// How a view is retired after a step of all ranks, and what the next one goes on from.

#include "apps/session/view.hpp"

namespace troupe {
namespace {

/// More than a view of one rank, with those of its node, ever names.
constexpr std::uint32_t kArenasOfAView = 8;

}  // namespace

/// The device actor goes on where the one before it has ended, and leaves word of where it ends.
void View::keep_progress(DeviceParts& device) {
  if (before_) device.from = before_->device;
  device.rebuild_refusal = [this] { return rebuild_refusal(); };
  device.retired = [this](DeviceProgress progress) { left_->device = std::move(progress); };
}

/// On the device actor's thread.
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

/// All ranks have committed the view's last step and know that the others have, so nobody waits for this rank's streams
/// any more, and what they left is final. First the lanes have to be done with what was sent: communicators that end by
/// abort() would not notice that.
std::unique_ptr<ViewState> View::hand_over() {
  Blocking blocking = Blocking::on_thread("session");
  TROUPE_CHECK(retired_ && left_ != nullptr, Code::invalid, "this view was not retired, or has handed over already");
  settle(blocking, home_.group(), *wires_, Deadline::after(settings().faults.exchange));
  take_down(blocking);
  if (listener_ != nullptr) listener_->flush();
  left_->steps = record_->result.total.steps;
  left_->samples = schedule_.samples_before({left_->steps});
  // From the next view's first step on, whatever batches it begins with.
  if (auto& shares = record_->shares_measured) {
    const Step first{left_->steps};
    shares = LedgerSpan{first, rows_of(*shares, first, schedule_, job_.plan.range)};
  }
  left_->memory = KeptMemory(*copies_, job_.plan, memory_, holds_parameters());
  for (const auto& exchange : work_.exchanges) left_->exchanges.push_back(exchange->hand_over());
  left_->start = places_[0].start;
  left_->start.folder.clear();
  left_->start.id = {.number = 0, .steps = left_->steps};
  left_->start.first_number = left_->device.next_number;
  left_->first_run = first_run_;
  left_->record = record_;
  return std::move(left_);
}

ViewRemains View::remains() { return {view_, std::move(wires_), std::move(arenas_)}; }

}  // namespace troupe
