#include "runtime/lanes/lane_wait.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/thread.hpp"
#include "runtime/lanes/detail/lane_state.hpp"
#include "runtime/memory/detail/overdue.hpp"

namespace troupe {
namespace {

using detail::kRoundsPerAlarm;
using detail::kStuck;
using detail::Sleeper;
using std::chrono::milliseconds;

/// How often to check whether the lane's thread has gone to sleep.
constexpr milliseconds kLookAgain{1};

/// The LaneWait whose lane this thread took in about_to_wait(); null: none.
thread_local const LaneWait* taken_by = nullptr;

milliseconds whole(Clock::duration span) { return std::chrono::ceil<milliseconds>(span); }

}  // namespace

struct LaneWait::Goal {
  bool reached() const noexcept { return line.value() >= at; }
  bool over() const noexcept { return line.word() >= at; }

  Timeline& line;
  const std::uint64_t at;
  const Deadline deadline;
};

/// Wakes the guest when another thread signals its timeline. Owns itself until the timeline has called it, which may be
/// long after a wait that passed its deadline.
struct LaneWait::SignalWaker final : Waker {
  explicit SignalWaker(std::shared_ptr<detail::Doorbell> guests) : doorbell(std::move(guests)) {}
  void reached(Point, Status) noexcept override {
    const auto keep = std::move(self);
    if (asleep.exchange(false)) doorbell->ring();
    registered.store(false, std::memory_order_release);
  }

  const std::shared_ptr<detail::Doorbell> doorbell;
  std::atomic<bool> asleep{false};
  std::atomic<bool> registered{false};
  std::shared_ptr<SignalWaker> self;
};

/// Holds the lane while this thread drives it.
class LaneWait::Turn {
 public:
  Turn(LaneLoop::State& lane, bool taken) noexcept : lane_(lane), taken_(taken) {}
  ~Turn() { end(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool begin() { return taken_ || (taken_ = lane_.take(/*unless_woken=*/false)); }
  void end() noexcept {
    if (std::exchange(taken_, false)) lane_.leave();
  }

 private:
  LaneLoop::State& lane_;
  bool taken_;
};

LaneWait::LaneWait(LaneLoop& lane, std::chrono::nanoseconds spin) : lane_(lane), spin_(spin) {}

LaneWait::~LaneWait() = default;

void LaneWait::about_to_wait() noexcept {
  if (taken_by != nullptr || lane_.on_thread()) return;
  if (lane_.state_->take(/*unless_woken=*/false)) taken_by = this;
}

/// A timeline of an arena is signalled by other processes, which no lane reports, and on the lane's own thread the lane
/// cannot be driven from within itself: both wait in the ordinary way. Otherwise this thread alternates: it drives the
/// lane while it can get it, and if another thread has it, waits for at most kLookAgain before it tries again, since
/// that thread may have gone to sleep. A lane that stops is not taken any more, so the rest of the wait is an ordinary
/// one.
Status LaneWait::wait(Blocking& blocking, Timeline& line, std::uint64_t at, Deadline deadline, std::string_view what) {
  LaneLoop::State& lane = *lane_.state_;
  const bool taken = taken_by == this;
  if (taken) taken_by = nullptr;
  Turn turn(lane, taken);
  const Goal goal{line, at, deadline};
  if (goal.over()) return goal.reached() ? Status{} : line.status();
  const bool ours = line.id().arena.value == 0;
  if (!ours || lane_.on_thread()) {
    turn.end();
    return line.wait(blocking, at, deadline, what);
  }
  const auto begun = Clock::now();
  while (!goal.over()) {
    if (turn.begin()) drive(goal);
    if (goal.over()) break;
    if (deadline.passed()) return detail::overdue(blocking, line, at, begun, what);
    turn.end();
    const bool stops = lane.stopping.load();
    const auto next = stops ? deadline.left() : std::min<Clock::duration>(deadline.left(), kLookAgain);
    Status status = line.wait(blocking, at, Deadline::after(next), what);
    if (stops) return status;
  }
  return goal.reached() ? Status{} : line.status();
}

/// Drives the lane until the goal is reached, its deadline has passed, or the lane is stopped.
void LaneWait::drive(const Goal& goal) {
  LaneLoop::State& lane = *lane_.state_;
  auto idle_since = Clock::now();
  bool idle = false;
  bool watched = false;
  unsigned busy_rounds = 0;
  while (!goal.over() && !lane.stopping.load(std::memory_order_acquire)) {
    const bool did = lane.guest_round();
    if (did) {
      idle = false;
      lane.spurious_wakeup = false;
      if (++busy_rounds % kRoundsPerAlarm != 0) continue;
    }
    const auto now = Clock::now();
    if (now >= goal.deadline.at()) return;
    if (lane.guest_ring(now) || did) continue;
    if (!std::exchange(idle, true)) idle_since = now;
    if (now - idle_since < spin_) {
      pause_cpu();
    } else {
      sleep(goal, idle_since, watched);
    }
  }
}

/// Sleeps until a task is posted, a message arrives, another thread signals the timeline, or the alarm or deadline is
/// due.
void LaneWait::sleep(const Goal& goal, Clock::time_point idle_since, bool& watched) {
  LaneLoop::State& lane = *lane_.state_;
  if (!std::exchange(watched, true)) {
    if (waker_ == nullptr || waker_->registered.load(std::memory_order_acquire)) {
      waker_ = std::make_shared<SignalWaker>(lane.guest_doorbell);
    }
    waker_->self = waker_;
    waker_->registered.store(true, std::memory_order_relaxed);
    goal.line.wake(goal.at, *waker_);
  }
  lane.sleeping.store(Sleeper::guest);
  // An exchange, which reads and writes at once: if the waker was called before it, the look below sees what was
  // signalled.
  waker_->asleep.exchange(true);
  if (lane.posted.empty() && !lane.busy_hook && !lane.stopping.load() && !goal.over()) {
    const auto at_most = std::min(whole(goal.deadline.left()), lane.until_alarm());
    if (lane.transport.arm(lane.lane)) {
      lane.guest_sleep(at_most, true);
    } else if (Clock::now() - idle_since >= kStuck) {
      lane.guest_sleep(std::min(at_most, kStuck), !lane.spurious_wakeup);
    } else {
      pause_cpu();
    }
  }
  waker_->asleep.store(false);
  lane.sleeping.store(Sleeper::nobody);
}

}  // namespace troupe
