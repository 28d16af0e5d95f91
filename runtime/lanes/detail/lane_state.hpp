#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "runtime/base/clock.hpp"
#include "runtime/base/detail/spin_time.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/mpsc_stack.hpp"
#include "runtime/lanes/lane_loop.hpp"

namespace troupe {
namespace detail {

using std::chrono::milliseconds;

/// The longest sleep of a thread that drives a lane. Nothing depends on it; it limits the delay if a transport ever
/// misses a wake-up.
constexpr milliseconds kLongestSleep{500};
/// While sends to a stuck or dead peer are pending, a transport may refuse every arm(). After this time without
/// progress the thread that drives it no longer polls: it sleeps for this time, and then checks again.
constexpr milliseconds kStuck{1};
constexpr unsigned kRoundsPerAlarm = 256;

/// An eventfd on which one thread sleeps, and which any thread rings to wake that thread.
class Doorbell {
 public:
  /// Throws Error{environment} without a file descriptor.
  Doorbell();
  int fd() const noexcept { return fd_.get(); }
  void ring() noexcept;
  /// For the sleeping thread, after it woke: removes the rings that it has seen.
  void clear() noexcept;

 private:
  const Fd fd_;
};

/// Which thread sleeps, and must be woken when something is posted.
enum class Sleeper : std::uint8_t { nobody, own, guest };

}  // namespace detail

/// The thread that drives a lane holds `driving`. That is the lane's own thread, or, while that sleeps, another lane's
/// thread that borrowed the lane (also_drives), or a guest: a thread that waits for data from the lane (LaneWait).
struct LaneLoop::State {
  State(Transport& lanes_transport, Lane which, LaneOptions how, std::string thread_name);

  void watch(int fd);
  bool push(LaneTask& task) noexcept;
  void wake_sleeper() noexcept;
  void run_tasks(LaneTask* oldest) noexcept;
  bool round();
  void note_round(Clock::time_point begun, bool did) noexcept;
  void run();
  bool finish();
  bool take(bool unless_woken);
  void watch_transport(bool yes) noexcept;
  void give_back() noexcept;
  bool take_other(bool unless_woken);
  bool drive_other();
  void leave_other();
  bool rest_other();
  void rest(Clock::time_point idle_since);
  bool ring(Clock::time_point now);
  std::chrono::milliseconds until_alarm() const;
  void sleep_for(std::chrono::milliseconds at_most, bool transport_too);

  // The next four are for a guest, on the guest's thread.
  void leave() noexcept;
  bool guest_round();
  bool guest_ring(Clock::time_point now);
  void guest_sleep(std::chrono::milliseconds at_most, bool transport_too);

  Transport& transport;
  const Lane lane;
  const LaneOptions options;
  const std::string name;
  detail::Doorbell wake;                                   // of the lane's own thread
  const std::shared_ptr<detail::Doorbell> guest_doorbell;  // shared with wakers that may outlive the lane
  const Fd sleep;
  std::function<bool()> hook;
  std::function<Clock::time_point()> alarm;
  State* other = nullptr;

  // Guards the state of the thread that drives the lane.
  std::mutex driving;

  // A poster pushes first and then reads `sleeping`; a sleeper writes `sleeping` first and then looks here again. So
  // one of the two always sees the other, and no task is missed. The same holds for `stopping`.
  using Tasks = MpscStack<LaneTask, &LaneTask::next_>;
  Tasks posted;
  std::atomic<detail::Sleeper> sleeping{detail::Sleeper::nobody};
  std::atomic<bool> running{false};  // the lane's own thread has begun
  std::atomic<bool> stopping{false};

  // Written before `stopping` is set, read by the lane's thread after it saw `stopping`.
  std::optional<Deadline> stop_by;
  std::function<bool()> drained;
  bool ended_drained = false;  // written by the lane's thread, read after the join

  // The lane whose own thread is the calling thread; null on other threads, and after that lane has stopped.
  static constinit thread_local State* lane_of_own_thread;
  bool polls = false;        // whether the lane's own thread polls before it sleeps; used by that thread only
  unsigned other_looks = 0;  // this many looks at the other lane remain until it counts as idle; likewise

  // Used only by the thread that drives the lane.
  bool busy_hook = false;
  std::optional<Clock::time_point> busy_since;  // for the trace
  Clock::time_point busy_until;
  bool has_other = false;               // this lane's thread drives `other` now
  bool cores = true;                    // this lane's thread need not share a core with the other lane's thread
  Clock::time_point leave_other_until;  // until then only its own thread drives the other lane
  Clock::time_point alarm_at = Clock::time_point::max();
  bool spurious_wakeup = false;  // the last wake-up by the transport's fd found no work

  std::mutex life;  // guards thread, started and stopped
  std::thread thread;
  bool started = false;
  bool stopped = false;
};

}  // namespace troupe
