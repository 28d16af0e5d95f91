#include "runtime/lane_loop.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/clock.hpp"
#include "runtime/error.hpp"
#include "runtime/thread.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

/// Progress calls in one round: enough to drain a burst, few enough that tasks and actors get their turn.
constexpr int kProgressCalls = 8;
/// The longest sleep. Nothing depends on it; it bounds the damage should a transport ever miss a wake-up.
constexpr milliseconds kLongestSleep{500};
/// While sends to a stuck or dead peer are pending, a transport may never let itself be armed: after this long without
/// progress the loop naps instead of spinning, and looks again after as long.
constexpr milliseconds kStuck{1};
constexpr int kPausesPerLook = 16;
constexpr unsigned kRoundsPerAlarm = 256;
/// A lane that is driven along gets one of so many idle rounds: looking at it makes what comes on the own lane wait.
constexpr unsigned kRoundsPerOther = 4;
/// A round of the other lane that takes longer is work for its own thread, where that has a core.
constexpr std::chrono::microseconds kLongOther{20};
constexpr std::chrono::milliseconds kLeaveOther{1};

class Fd {
 public:
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

class NoTask final : public LaneTask {
 public:
  void run() noexcept override {}
};

/// Stands in the list's head when the list takes nothing any more.
LaneTask* closed_mark() noexcept {
  static NoTask mark;
  return &mark;
}

void pause_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

thread_local const void* this_threads_lane = nullptr;

/// Whether the calling thread has more cores than one.
bool has_cores() noexcept {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  return sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) > 1;
}

}  // namespace

struct LaneLoop::State {
  State(Transport& lanes_transport, Lane which, LaneOptions how, std::string thread_name)
      : transport(lanes_transport),
        lane(which),
        options(how),
        name(std::move(thread_name)),
        wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        sleep(epoll_create1(EPOLL_CLOEXEC)) {
    TROUPE_CHECK_ERRNO(wake.get() >= 0 && sleep.get() >= 0, Code::environment, "lane ", name,
                       ": no file descriptors left for its event queue; raise the limit (ulimit -n)");
    watch(wake.get());
    watch(transport.fd(lane));
  }

  void watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    TROUPE_CHECK_ERRNO(epoll_ctl(sleep.get(), EPOLL_CTL_ADD, fd, &event) == 0, Code::environment, "lane ", name,
                       ": cannot wait for file descriptor ", fd);
  }

  bool push(LaneTask& task) noexcept;
  void wake_up() noexcept;
  bool run_tasks(LaneTask* replacement) noexcept;
  bool round();
  void run();
  bool finish();
  bool borrow();
  void give_back();
  bool drive_other();
  void leave_other();
  bool rest_other();
  void rest(Clock::time_point idle_since);
  bool ring(Clock::time_point now);
  milliseconds until_alarm() const;
  void nap(milliseconds at_most, bool transport_too);

  Transport& transport;
  const Lane lane;
  const LaneOptions options;
  const std::string name;
  const Fd wake;
  const Fd sleep;
  std::function<bool()> hook;
  std::function<Clock::time_point()> alarm;
  State* other = nullptr;

  // Who drives the lane: its thread, but while that naps another may. Guards what is the lane's thread's.
  std::mutex driving;

  // Newest first; any thread pushes, the lane's thread takes all. Sequentially consistent together with `sleeping`: a
  // poster that misses the sleeper was itself seen by the sleeper's second look.
  std::atomic<LaneTask*> posted{nullptr};
  std::atomic<bool> sleeping{false};
  std::atomic<bool> stopping{false};

  // Written before `stopping` is raised, read by the lane's thread after it saw it.
  std::optional<Deadline> stop_by;
  std::function<bool()> drained;
  bool ended_drained = false;  // written by the lane's thread, read after the join

  // Only who drives the lane.
  bool busy_hook = false;
  bool has_other = false;               // `other` is driven by this one now
  bool cores = true;                    // this lane's thread may use more than one
  Clock::time_point leave_other_until;  // its own thread has it
  Clock::time_point alarm_at = Clock::time_point::max();
  bool fd_lies = false;  // the transport's fd woke the last nap and nothing was there

  std::mutex life;  // guards thread, started and stopped
  std::thread thread;
  bool started = false;
  bool stopped = false;
};

bool LaneLoop::State::push(LaneTask& task) noexcept {
  LaneTask* head = posted.load(std::memory_order_relaxed);
  do {
    if (head == closed_mark()) return false;
    task.next_ = head;
  } while (!posted.compare_exchange_weak(head, &task));
  if (sleeping.load() && sleeping.exchange(false)) wake_up();
  return true;
}

void LaneLoop::State::wake_up() noexcept {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then the fd is readable anyway.
  [[maybe_unused]] const auto written = write(wake.get(), &one, sizeof one);
}

/// Runs what was posted, oldest first, and leaves `replacement` as the list.
bool LaneLoop::State::run_tasks(LaneTask* replacement) noexcept {
  if (replacement == nullptr && posted.load(std::memory_order_relaxed) == nullptr) return false;
  LaneTask* newest = posted.exchange(replacement);
  LaneTask* oldest = nullptr;
  while (newest != nullptr) {
    LaneTask* const earlier = newest->next_;
    newest->next_ = oldest;
    oldest = newest;
    newest = earlier;
  }
  const bool any = oldest != nullptr;
  while (oldest != nullptr) {
    LaneTask* const task = oldest;
    oldest = task->next_;  // the task may be gone once it runs
    task->run();
  }
  return any;
}

bool LaneLoop::State::round() {
  bool did = posted.load(std::memory_order_relaxed) != closed_mark() && run_tasks(nullptr);
  for (int call = 0; call < kProgressCalls && transport.progress(lane); ++call) did = true;
  did |= std::exchange(busy_hook, false);
  if (did && hook) busy_hook = hook();
  return did;
}

/// Another lane's thread drives this one from now on; false when its own thread is awake.
bool LaneLoop::State::borrow() {
  if (!sleeping.load() || stopping.load() || !driving.try_lock()) return false;
  if (!sleeping.load() || stopping.load()) {
    driving.unlock();
    return false;
  }
  sleeping.store(false);                                               // who posts need not wake its thread
  epoll_ctl(sleep.get(), EPOLL_CTL_DEL, transport.fd(lane), nullptr);  // nor what arrives
  return true;
}

/// Its own thread drives it again, once it wakes up.
void LaneLoop::State::give_back() {
  watch(transport.fd(lane));
  driving.unlock();
}

/// A round for the other lane, if its thread sleeps; whether that did something.
bool LaneLoop::State::drive_other() {
  const auto begun = cores ? Clock::now() : Clock::time_point{};
  if (!has_other) {
    if (cores && begun < leave_other_until) return false;
    has_other = other->borrow();
    if (!has_other) return false;
  }
  this_threads_lane = other;
  const bool did = other->round();
  this_threads_lane = this;
  const bool much = did && cores && Clock::now() - begun > kLongOther;
  if (much) leave_other_until = begun + kLeaveOther;
  if (much || other->stopping.load(std::memory_order_relaxed)) leave_other();
  return did;
}

/// Leaves the other lane to its thread, whatever there is to do.
void LaneLoop::State::leave_other() {
  if (!std::exchange(has_other, false)) return;
  other->give_back();
  other->wake_up();
}

/// Before this thread sleeps: lets the other lane sleep too; false when that has something to do.
bool LaneLoop::State::rest_other() {
  if (!has_other) return true;
  other->sleeping.store(true);
  if (other->posted.load() != nullptr || other->busy_hook || !other->transport.arm(other->lane)) {
    other->sleeping.store(false);
    return false;
  }
  has_other = false;
  other->give_back();
  return true;
}

void LaneLoop::State::run() {
  const std::unique_lock drives(driving);
  this_threads_lane = this;
  cores = has_cores();
  auto idle_since = Clock::now();
  bool idle = false;
  unsigned rounds = 0;
  unsigned busy_rounds = 0;
  if (alarm) alarm_at = Clock::now();
  while (!stopping.load(std::memory_order_acquire)) {
    if (round()) {
      idle = false;
      fd_lies = false;
      ++busy_rounds;
      if (has_other && busy_rounds % kRoundsPerOther == 0) drive_other();
      if (alarm && busy_rounds % kRoundsPerAlarm == 0) ring(Clock::now());
      continue;
    }
    if (!std::exchange(idle, true)) {
      idle_since = Clock::now();
      rounds = 0;
    }
    ++rounds;
    if (other != nullptr && options.spin.count() > 0 && rounds % kRoundsPerOther == 0 && drive_other()) {
      idle = false;
      continue;
    }
    if (options.spin.count() > 0 && rounds % kPausesPerLook != 0) {
      pause_cpu();
      continue;
    }
    const auto now = Clock::now();
    if (ring(now)) continue;
    if (options.spin.count() > 0 && now - idle_since < options.spin) {
      pause_cpu();
      continue;
    }
    if (rest_other()) {
      rest(idle_since);
    } else if (drive_other()) {
      idle = false;
    } else if (now - idle_since >= kStuck) {  // it waits for a peer, maybe for long: its own thread knows how
      leave_other();
    }
  }
  leave_other();
  ended_drained = finish();
  this_threads_lane = nullptr;
}

/// Calls the alarm when it is time; whether it was.
bool LaneLoop::State::ring(Clock::time_point now) {
  if (now < alarm_at) return false;
  alarm_at = alarm();
  busy_hook |= hook && hook();  // for what the alarm sent
  return true;
}

/// Sleeps until something is posted or arrives, as well as the transport allows.
void LaneLoop::State::rest(Clock::time_point idle_since) {
  sleeping.store(true);
  if (posted.load() != nullptr || stopping.load()) {
    sleeping.store(false);
    return;
  }
  if (transport.arm(lane)) {
    nap(until_alarm(), true);
  } else if (Clock::now() - idle_since >= kStuck) {
    nap(kStuck, !fd_lies);
  } else {
    pause_cpu();
  }
  sleeping.store(false);
}

milliseconds LaneLoop::State::until_alarm() const {
  if (alarm_at == Clock::time_point::max()) return kLongestSleep;
  const auto left = std::chrono::ceil<milliseconds>(alarm_at - Clock::now());
  return std::clamp(left, milliseconds(0), kLongestSleep);
}

void LaneLoop::State::nap(milliseconds at_most, bool transport_too) {
  std::array<epoll_event, 2> events{};
  driving.unlock();
  if (!transport_too) {  // its fd is readable for nothing: look at it after the nap
    pollfd own{wake.get(), POLLIN, 0};
    poll(&own, 1, static_cast<int>(at_most.count()));
  } else {
    const int count = epoll_wait(sleep.get(), events.data(), events.size(), static_cast<int>(at_most.count()));
    for (int i = 0; i < count; ++i) fd_lies |= events[static_cast<std::size_t>(i)].data.fd != wake.get();
  }
  driving.lock();
  std::uint64_t posts = 0;
  [[maybe_unused]] const auto taken = read(wake.get(), &posts, sizeof posts);
}

/// The last rounds: until nothing is left to send or the time is over; then the list is closed, and what was posted
/// meanwhile still runs.
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
      nap(kStuck, false);
    } else {
      pause_cpu();
    }
  }
  run_tasks(closed_mark());
  round();
  return drained ? drained() : clean;
}

LaneLoop::LaneLoop(Transport& transport, Lane lane, LaneOptions options, std::string thread_name)
    : state_(std::make_unique<State>(transport, lane, options, std::move(thread_name))) {}

LaneLoop::~LaneLoop() { stop(Deadline::after(Clock::duration::zero())); }

void LaneLoop::start() {
  State& s = *state_;
  const std::scoped_lock hold(s.life);
  TROUPE_CHECK(!s.started && !s.stopped, Code::invalid, "lane ", s.name, " is started a second time");
  s.thread = start_thread(s.name, [&s] { s.run(); });
  s.started = true;
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
      s.wake_up();
      s.thread.join();
    } else {
      s.run();  // nobody drove the lane yet, so the caller does: what was posted still runs
    }
  }
  return s.ended_drained;
}

}  // namespace troupe
