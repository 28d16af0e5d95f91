#include "wait_keeper.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/thread.hpp"

namespace opencl {

/// Passes the result of a line's wait on. It keeps itself alive until it is called, at the latest when the line is
/// destroyed.
class WaitKeeper::Told final : public Waker {
 public:
  Told(std::shared_ptr<State> state, std::shared_ptr<AwaitedPoint> point)
      : state_(std::move(state)), point_(std::move(point)) {}
  static void ask(std::shared_ptr<State> state, const std::shared_ptr<AwaitedPoint>& point) {
    const auto waker = std::make_shared<Told>(std::move(state), point);
    waker->self_ = waker;
    point->line->wake(point->value, *waker);
  }
  void reached(Point, Status status) noexcept override {
    const auto self = std::move(self_);
    const std::lock_guard lock{state_->mutex};
    point_->told = std::move(status);
    state_->changed.notify_one();
  }

 private:
  const std::shared_ptr<State> state_;
  const std::shared_ptr<AwaitedPoint> point_;
  std::shared_ptr<Told> self_;
};

WaitKeeper::WaitKeeper(std::chrono::milliseconds wait_deadline) : wait_deadline_(wait_deadline) {
  thread_ = start_thread("opencl-waits", [this] { run(); });
}

WaitKeeper::~WaitKeeper() {
  {
    const std::lock_guard lock{state_->mutex};
    state_->stop = true;
  }
  state_->changed.notify_one();
  thread_.join();
}

void WaitKeeper::watch(const std::shared_ptr<AwaitedPoint>& point) {
  {
    const std::lock_guard lock{state_->mutex};
    state_->points.push_back(point);
    state_->changed.notify_one();
  }
  Told::ask(state_, point);
}

void WaitKeeper::arrived(const std::shared_ptr<AwaitedPoint>& point) {
  const std::lock_guard lock{state_->mutex};
  point->begins = Clock::now();
  state_->changed.notify_one();
}

void WaitKeeper::look_again() noexcept {
  const std::lock_guard lock{state_->mutex};
  state_->changed.notify_one();
}

std::optional<Status> WaitKeeper::outcome(const AwaitedPoint& point) const {
  if (point.told && point.told->ok()) return Status{};
  if (!point.begins) return {};
  if (point.stream->ended()) return Status{};
  if (point.told) return point.told;
  if (Clock::now() < *point.begins + wait_deadline_) return {};
  const TimelineId line = point.line->id();
  return Status{Code::timeout,
                text("waited ", std::chrono::duration<double>(wait_deadline_).count(), " s (faults.exchange_s) for ",
                     line.arena.value == 0 ? "this process" : text("rank ", creator_of(line.arena).value), " to reach ",
                     point.value, " on line ", line.index, ", now at ", point.line->value())};
}

void WaitKeeper::run() {
  std::unique_lock lock{state_->mutex};
  for (;;) {
    std::vector<std::pair<std::shared_ptr<AwaitedPoint>, Status>> due;
    std::optional<Clock::time_point> next;
    std::erase_if(state_->points, [&](const std::shared_ptr<AwaitedPoint>& point) {
      if (const auto status = outcome(*point)) {
        due.emplace_back(point, *status);
        return true;
      }
      if (point->begins && !point->told)
        next = std::min(next.value_or(*point->begins + wait_deadline_), *point->begins + wait_deadline_);
      return false;
    });
    if (!due.empty()) {
      lock.unlock();  // the calls below may call back into other streams
      for (const auto& [point, status] : due) {
        if (!status.ok()) point->stream->end(status);
        clSetUserEventStatus(point->event.get(), CL_COMPLETE);
      }
      due.clear();
      lock.lock();
      continue;
    }
    if (state_->stop) return;
    if (next) {
      state_->changed.wait_until(lock, *next);
    } else {
      state_->changed.wait(lock);
    }
  }
}

}  // namespace opencl
