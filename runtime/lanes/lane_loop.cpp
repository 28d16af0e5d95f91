#include "runtime/lanes/lane_loop.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/thread.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/lanes/detail/lane_state.hpp"

namespace troupe {
namespace {

using detail::kLongestSleep;
using detail::kRoundsPerAlarm;
using detail::kStuck;
using detail::Sleeper;
using detail::SpinTime;
using std::chrono::milliseconds;

/// Progress calls in one round: enough for a burst of messages, few enough that tasks and actors run soon.
constexpr int kProgressCalls = 8;
constexpr int kPausesPerLook = 16;
/// While the other lane that this thread drives has nothing to do, it gets one of so many idle rounds, because each
/// look at it delays what arrives on this lane. While it moves data, and for some looks after that, it gets more of the
/// idle rounds and as many of the busy ones. Still more would make TCP move less data at a time.
constexpr unsigned kRoundsPerOther = 16;
constexpr unsigned kRoundsPerMovingOther = 4;
constexpr unsigned kMoreLooks = 16;
/// If a round of the other lane takes longer, its own thread should do that work, provided that it has a core.
constexpr std::chrono::microseconds kLongOther{20};
constexpr std::chrono::milliseconds kLeaveOther{1};

thread_local const void* this_threads_lane = nullptr;

/// While it exists, the calling thread counts as the lane's thread.
class OnLane {
 public:
  explicit OnLane(const void* lane) noexcept : before_(std::exchange(this_threads_lane, lane)) {}
  ~OnLane() { this_threads_lane = before_; }
  OnLane(const OnLane&) = delete;
  OnLane& operator=(const OnLane&) = delete;

 private:
  const void* const before_;
};

}  // namespace

namespace detail {

Doorbell::Doorbell() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  TROUPE_CHECK_ERRNO(fd_.get() >= 0, Code::environment,
                     "no file descriptors left for a lane's wake-ups; raise the limit (ulimit -n)");
}

void Doorbell::ring() noexcept {
  const std::uint64_t one = 1;
  // Fails only if the counter is full, and then the fd is readable anyway.
  [[maybe_unused]] const auto written = write(fd_.get(), &one, sizeof one);
}

void Doorbell::clear() noexcept {
  std::uint64_t rings = 0;
  [[maybe_unused]] const auto taken = read(fd_.get(), &rings, sizeof rings);
}

}  // namespace detail

// Why no task is ever forgotten: a poster first pushes and then reads `sleeping`; a sleeper first writes `sleeping` and
// then reads `posted` (and in the same way `stopping`, and a guest its line). All four accesses are sequentially
// consistent, so at least one of the two threads sees what the other wrote: either the poster rings, or the sleeper
// does not sleep. For messages that arrive the transport guarantees the same: arm() returns false when there is
// something to do already. If the order of any of these changes, a wake-up can be missed; kLongestSleep would then hide
// the fault as a delay of half a second.
//
// The thread that holds `driving` may drive the lane. The lane's own thread releases it before it sleeps in epoll and
// takes it again when it wakes. So if try_lock succeeds, that thread sleeps, or is about to sleep or to wake; if it is
// about to wake, it waits for the mutex until the guest leaves.

constinit thread_local LaneLoop::State* LaneLoop::State::lane_of_own_thread = nullptr;

LaneLoop::State::State(Transport& lanes_transport, Lane which, LaneOptions how, std::string thread_name)
    : transport(lanes_transport),
      lane(which),
      options(std::move(how)),
      name(std::move(thread_name)),
      guest_doorbell(std::make_shared<detail::Doorbell>()),
      sleep(epoll_create1(EPOLL_CLOEXEC)) {
  TROUPE_CHECK_ERRNO(sleep.get() >= 0, Code::environment, "lane ", name,
                     ": no file descriptors left for its event queue; raise the limit (ulimit -n)");
  watch(wake.fd());
  watch(transport.fd(lane));
}

void LaneLoop::State::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  TROUPE_CHECK_ERRNO(epoll_ctl(sleep.get(), EPOLL_CTL_ADD, fd, &event) == 0, Code::environment, "lane ", name,
                     ": cannot wait for file descriptor ", fd);
}

bool LaneLoop::State::push(LaneTask& task) noexcept {
  if (!posted.push(task)) return false;
  if (sleeping.load() == Sleeper::nobody) return true;  // the thread that drives looks again before it sleeps
  // If this lane polls, its thread drives the other one at once, which avoids waking a thread that may share its core.
  State* const poster = lane_of_own_thread;
  if (poster == nullptr || poster->other != this || !poster->take_other(/*unless_woken=*/false)) wake_sleeper();
  return true;
}

void LaneLoop::State::wake_sleeper() noexcept {
  switch (sleeping.exchange(Sleeper::nobody)) {
    case Sleeper::own: return wake.ring();
    case Sleeper::guest: return guest_doorbell->ring();
    case Sleeper::nobody: return;
  }
}

/// Runs the tasks of a list, oldest first.
void LaneLoop::State::run_tasks(LaneTask* oldest) noexcept {
  while (oldest != nullptr) {
    LaneTask* const task = oldest;
    oldest = Tasks::next_of(*task);  // the task may be destroyed once it runs
    task->run();
  }
}

/// Tasks run before progress, so that a task posted before a message arrived also runs before it. The hook runs only
/// after a round that did something, and again after a hook call that did something, because that may have made actors
/// ready.
bool LaneLoop::State::round() {
  const auto begun = options.trace == nullptr ? Clock::time_point{} : Clock::now();
  LaneTask* const oldest = posted.take_all();
  bool did = oldest != nullptr;
  if (did) run_tasks(oldest);
  for (int call = 0; call < kProgressCalls && transport.progress(lane); ++call) did = true;
  did |= std::exchange(busy_hook, false);
  if (did && hook) busy_hook = hook();
  if (options.trace != nullptr) note_round(begun, did);
  return did;
}

/// Consecutive rounds are recorded as one span.
void LaneLoop::State::note_round(Clock::time_point begun, bool did) noexcept {
  constexpr std::chrono::milliseconds kLongest{1};
  if (did && !busy_since) busy_since = begun;
  if (did) busy_until = Clock::now();
  if (busy_since && (!did || busy_until - *busy_since > kLongest)) {
    options.trace->span("move", *busy_since, busy_until);
    busy_since.reset();
  }
}

/// The calling thread drives this lane from now on, in place of the lane's own thread; false if that is awake. With
/// `unless_woken` also false if it is about to wake up.
bool LaneLoop::State::take(bool unless_woken) {
  const auto may = [&] {
    return running.load() && !stopping.load() && (!unless_woken || sleeping.load() == Sleeper::own);
  };
  if (!may() || !driving.try_lock()) return false;
  if (!may()) {  // again under the lock: stop() may have come in between, and then the lane's own thread must continue
    driving.unlock();
    return false;
  }
  sleeping.store(Sleeper::nobody);  // posters need not wake the lane's thread
  watch_transport(false);           // nor need messages
  return true;
}

/// Sets whether arriving messages wake the lane's own thread. Changing an entry of epoll takes no memory and therefore
/// cannot fail, unlike adding it again: a lane can always be given back.
void LaneLoop::State::watch_transport(bool yes) noexcept {
  epoll_event event{};
  event.events = yes ? EPOLLIN : 0U;
  event.data.fd = transport.fd(lane);
  epoll_ctl(sleep.get(), EPOLL_CTL_MOD, event.data.fd, &event);
}

/// The lane's own thread drives it again when it wakes up.
void LaneLoop::State::give_back() noexcept {
  watch_transport(true);
  driving.unlock();
}

/// Gives the lane back as a guest: the lane's own thread continues to sleep unless there is work.
void LaneLoop::State::leave() noexcept {
  sleeping.store(Sleeper::own);  // set for the lane's own thread, which sleeps: this thread checks in its place
  const bool rests = posted.empty() && !busy_hook && !stopping.load() && transport.arm(lane);
  if (!rests) sleeping.store(Sleeper::nobody);
  give_back();
  if (!rests) wake.ring();
}

bool LaneLoop::State::guest_round() {
  const OnLane here(this);
  return round();
}

bool LaneLoop::State::guest_ring(Clock::time_point now) {
  const OnLane here(this);
  return ring(now);
}

void LaneLoop::State::guest_sleep(milliseconds at_most, bool transport_too) {
  std::array<pollfd, 2> fds{{{guest_doorbell->fd(), POLLIN, 0}, {transport.fd(lane), POLLIN, 0}}};
  poll(fds.data(), transport_too ? 2 : 1, static_cast<int>(at_most.count()));
  spurious_wakeup |= transport_too && fds[1].revents != 0;
  if (fds[0].revents != 0) guest_doorbell->clear();
}

/// From now on this thread drives the other lane too, if that lane's thread sleeps and should stay asleep.
bool LaneLoop::State::take_other(bool unless_woken) {
  if (has_other) return true;
  if (!polls || (cores && Clock::now() < leave_other_until)) return false;
  has_other = other->take(unless_woken);
  return has_other;
}

/// Runs a round of the other lane if its thread sleeps; returns whether that did something. If both threads share a
/// core, a thread that was woken could only run once this one sleeps, so there it counts as asleep.
bool LaneLoop::State::drive_other() {
  const auto begun = cores ? Clock::now() : Clock::time_point{};
  if (!take_other(/*unless_woken=*/cores)) return false;
  const bool did = other->guest_round();
  other_looks = did ? kMoreLooks : other_looks - std::min(other_looks, 1U);
  const bool much = did && cores && Clock::now() - begun > kLongOther;
  if (much) leave_other_until = begun + kLeaveOther;
  if (much || other->stopping.load(std::memory_order_relaxed)) leave_other();
  return did;
}

/// Leaves the other lane to its own thread and wakes that, whether or not there is work.
void LaneLoop::State::leave_other() {
  if (!std::exchange(has_other, false)) return;
  other->give_back();
  other->wake.ring();
}

/// Call this before this thread sleeps. Lets the other lane sleep too; false if that has work.
bool LaneLoop::State::rest_other() {
  if (!has_other) return true;
  other->sleeping.store(Sleeper::own);
  if (!other->posted.empty() || other->busy_hook || !other->transport.arm(other->lane)) {
    other->sleeping.store(Sleeper::nobody);
    return false;
  }
  has_other = false;
  other->give_back();
  return true;
}

void LaneLoop::State::run() {
  const std::unique_lock drives(driving);
  const OnLane here(this);
  running.store(true);
  cores = !options.cpus.empty() || usable_cpus().size() > 1;
  SpinTime spin(options.spin, options.spin_most);
  polls = spin.any();
  lane_of_own_thread = this;
  auto idle_since = Clock::now();
  bool idle = false;
  unsigned rounds = 0;
  unsigned busy_rounds = 0;
  if (alarm) alarm_at = Clock::now();
  while (!stopping.load(std::memory_order_acquire)) {
    if (round()) {
      if (std::exchange(idle, false) && spin.adapts()) spin.came_after(Clock::now() - idle_since);
      spurious_wakeup = false;
      ++busy_rounds;
      if (has_other && (busy_rounds % kRoundsPerMovingOther == 0 || !other->posted.empty())) drive_other();
      if (alarm && busy_rounds % kRoundsPerAlarm == 0) ring(Clock::now());
      continue;
    }
    if (!std::exchange(idle, true)) {
      idle_since = Clock::now();
      rounds = 0;
    }
    ++rounds;
    const bool turn_of_other =
        rounds % kRoundsPerMovingOther == 0 && (other_looks > 0 || rounds % kRoundsPerOther == 0);
    if (turn_of_other && other != nullptr && polls && drive_other()) {
      idle = false;
      if (spin.adapts()) spin.came_after(Clock::now() - idle_since);
      continue;
    }
    if (polls && rounds % kPausesPerLook != 0) {
      pause_cpu();
      continue;
    }
    const auto now = Clock::now();
    if (ring(now)) continue;
    if (now - idle_since < spin.span()) {
      pause_cpu();
      continue;
    }
    if (rest_other()) {  // the other lane first: while this thread holds it, no other thread would be woken for it
      rest(idle_since);
    } else if (drive_other()) {
      idle = false;
    } else if (now - idle_since >= kStuck) {  // it waits for a peer, maybe for long: its own thread can sleep meanwhile
      leave_other();
    }
  }
  lane_of_own_thread = nullptr;
  leave_other();
  ended_drained = finish();
}

/// Calls the alarm if it is time; returns whether it was.
bool LaneLoop::State::ring(Clock::time_point now) {
  if (now < alarm_at) return false;
  alarm_at = alarm();
  busy_hook |= hook && hook();  // for messages that the alarm sent
  return true;
}

/// Sleeps until a task is posted or a message arrives; if the transport cannot be armed, naps or pauses instead.
void LaneLoop::State::rest(Clock::time_point idle_since) {
  sleeping.store(Sleeper::own);
  if (!posted.empty() || stopping.load()) {
    sleeping.store(Sleeper::nobody);
    return;
  }
  if (transport.arm(lane)) {
    sleep_for(until_alarm(), true);
  } else if (Clock::now() - idle_since >= kStuck) {
    sleep_for(kStuck, !spurious_wakeup);
  } else {
    pause_cpu();
  }
  sleeping.store(Sleeper::nobody);
}

milliseconds LaneLoop::State::until_alarm() const {
  if (alarm_at == Clock::time_point::max()) return kLongestSleep;
  const auto left = std::chrono::ceil<milliseconds>(alarm_at - Clock::now());
  return std::clamp(left, milliseconds(0), kLongestSleep);
}

void LaneLoop::State::sleep_for(milliseconds at_most, bool transport_too) {
  std::array<epoll_event, 2> events{};
  bool arrived = false;
  driving.unlock();
  if (!transport_too) {  // its fd is readable without a reason: look at it after the sleep
    pollfd own{wake.fd(), POLLIN, 0};
    poll(&own, 1, static_cast<int>(at_most.count()));
  } else {
    const int count = epoll_wait(sleep.get(), events.data(), events.size(), static_cast<int>(at_most.count()));
    for (int i = 0; i < count; ++i) arrived |= events[static_cast<std::size_t>(i)].data.fd != wake.fd();
  }
  driving.lock();
  spurious_wakeup |= arrived;
  wake.clear();
}

/// The last rounds: until nothing is left to send or the deadline has passed. Then the list is closed, and tasks that
/// were posted meanwhile still run.
bool LaneLoop::State::finish() {
  bool clean = false;
  auto idle_since = Clock::now();
  for (;;) {
    const bool did = round();
    clean = drained ? drained() : !did;
    if (clean && !did) break;
    if (stop_by->passed()) break;
    if (did) {
      idle_since = Clock::now();
    } else if (Clock::now() - idle_since >= kStuck) {
      sleep_for(kStuck, false);
    } else {
      pause_cpu();
    }
  }
  run_tasks(posted.close());
  round();
  return drained ? drained() : clean;
}

LaneLoop::LaneLoop(Transport& transport, Lane lane, LaneOptions options, std::string thread_name)
    : state_(std::make_unique<State>(transport, lane, std::move(options), std::move(thread_name))) {}

LaneLoop::~LaneLoop() { stop(Deadline::after(Clock::duration::zero())); }

void LaneLoop::start() {
  State& s = *state_;
  const std::scoped_lock hold(s.life);
  TROUPE_CHECK(!s.started && !s.stopped, Code::invalid, "lane ", s.name, " is started a second time");
  s.thread = start_thread(s.name, [&s] { s.run(); });
  s.started = true;
  if (!s.options.cpus.empty()) keep_on(s.thread, s.options.cpus, s.name);
}

bool LaneLoop::post(LaneTask& task) noexcept { return state_->push(task); }

bool LaneLoop::on_thread() const noexcept { return this_threads_lane == state_.get(); }

Lane LaneLoop::lane() const noexcept { return state_->lane; }

Transport& LaneLoop::transport() const noexcept { return state_->transport; }

void LaneLoop::after_round(std::function<bool()> hook) {
  const std::scoped_lock hold(state_->life);
  TROUPE_CHECK(!state_->started, Code::invalid, "lane ", state_->name, " already runs; set its hook before start()");
  state_->hook = std::move(hook);
}

void LaneLoop::also_drives(LaneLoop& other) {
  const std::scoped_lock hold(state_->life);
  TROUPE_CHECK(!state_->started && &state_->transport == &other.state_->transport, Code::invalid, "lane ", state_->name,
               " cannot drive ", other.state_->name, ": it runs already, or is of another transport");
  state_->other = other.state_.get();
}

void LaneLoop::on_time(std::function<Clock::time_point()> alarm) {
  const std::scoped_lock hold(state_->life);
  TROUPE_CHECK(!state_->started, Code::invalid, "lane ", state_->name, " already runs; set its alarm before start()");
  state_->alarm = std::move(alarm);
}

bool LaneLoop::stop(Deadline deadline, const std::function<bool()>& drained) {
  State& s = *state_;
  TROUPE_CHECK(!on_thread(), Code::invalid, "lane ", s.name, " cannot stop itself: stop it from another thread");
  const std::scoped_lock hold(s.life);
  if (!std::exchange(s.stopped, true)) {
    s.stop_by = deadline;
    s.drained = drained;
    s.stopping.store(true);
    if (s.started) {
      s.wake_sleeper();  // which may be a guest
      s.wake.ring();
      s.thread.join();
    } else {
      s.run();  // no thread has driven the lane yet, so the caller does: posted tasks still run
    }
  }
  return s.ended_drained;
}

}  // namespace troupe
