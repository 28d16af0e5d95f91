#include <sys/resource.h>
#include <time.h>

#include <caf/abstract_actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/scheduler/abstract_coordinator.hpp>
#include <optional>
#include <utility>

#include "actors/remote/detail/inline_unit.hpp"

namespace troupe::remote {
namespace {

/// Messages of one actor before the next one has its turn.
constexpr std::size_t kThroughput = 16;
/// Turns before the transport makes progress again.
constexpr int kTurns = 64;
/// Reading the clock takes longer than a small handler: one in this number of turns is timed.
constexpr unsigned kTimedEvery = 8;

/// The time that a handler is responsible for since the stopwatch was made: the time in which this thread had a core,
/// and the whole time if the handler itself gave the core up. It costs two system calls.
class Stopwatch {
 public:
  Clock::duration read() const {
    const Look now = look();
    return now.waits == begun_.waits ? now.core - begun_.core : now.wall - begun_.wall;
  }

 private:
  struct Look {
    Clock::duration wall;
    Clock::duration core;
    long waits;
  };
  static Look look() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    timespec core{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &core);
    return {Clock::now().time_since_epoch(), std::chrono::seconds(core.tv_sec) + std::chrono::nanoseconds(core.tv_nsec),
            usage.ru_nvcsw};
  }

  Look begun_ = look();
};

thread_local const InlineUnit* this_threads_unit = nullptr;    // the unit of the lane that this thread drives
thread_local const LaneAccess* running_lane_access = nullptr;  // set while an actor of its unit runs here

}  // namespace

const LaneAccess* running_inline() noexcept { return running_lane_access; }

InlineUnit::InlineUnit(caf::actor_system& system, std::shared_ptr<LaneAccess> lane_access, Clock::duration longest,
                       Slow slow)
    : caf::execution_unit(&system), lane_access_(std::move(lane_access)), longest_(longest), slow_(std::move(slow)) {}

void InlineUnit::exec_later(caf::resumable* job) {
  if (this_threads_unit == this) {
    if (closed_) return to_scheduler(job);
    return ready_.push_back(job);
  }
  // The job keeps its actor alive, and the actor keeps this unit alive.
  const bool posted = lane_access_->run([this, job] {
    this_threads_unit = this;
    exec_later(job);
  });
  if (!posted) to_scheduler(job);
}

void InlineUnit::to_scheduler(caf::resumable* job) { system().scheduler().enqueue(job); }

bool InlineUnit::run() {
  this_threads_unit = this;
  if (running_ || ready_.empty()) return false;
  running_ = true;
  running_lane_access = lane_access_.get();
  for (int turn = 0; turn < kTurns && !ready_.empty(); ++turn) {
    caf::resumable* const job = ready_.front();
    ready_.pop_front();
    run_one(job);
  }
  running_lane_access = nullptr;
  running_ = false;
  return true;
}

/// Executes a turn; one in kTimedEvery is timed. A long one may be due to another process that had this core meanwhile,
/// so it only causes the next turns to be timed precisely, and these count. Returns whether the scheduler takes the
/// actor over.
template <class Turn>
bool InlineUnit::timed(Turn turn, caf::abstract_actor* actor) {
  if (suspicious_) {
    const Stopwatch stopwatch;
    turn();
    const auto took = stopwatch.read();
    suspicious_ = took > longest_;
    return suspicious_ && note_slow(actor, took);
  }
  if (++turns_ % kTimedEvery == 0) {
    const auto begun = Clock::now();
    turn();
    suspicious_ = Clock::now() - begun > longest_;
  } else {
    turn();
  }
  return false;
}

void InlineUnit::run_one(caf::resumable* job) {
  auto result = caf::resumable::done;
  const bool moved = timed([&] { result = job->resume(this, kThroughput); }, dynamic_cast<caf::abstract_actor*>(job));
  if (result == caf::resumable::resume_later) {
    if (moved) return to_scheduler(job);
    return ready_.push_back(job);
  }
  caf::intrusive_ptr_release(job);
}

void InlineUnit::hand(troupe::detail::InlineHandler& actor, const caf::strong_actor_ptr& handle,
                      caf::mailbox_element_ptr message) {
  if (actor.is_moved()) actor.return_inline(Clock::now());
  if (running_ || closed_ || !ready_.empty() || actor.executor_unit() != this) {
    handle->enqueue(std::move(message), nullptr);
    return;
  }
  this_threads_unit = this;
  running_ = true;
  running_lane_access = lane_access_.get();
  bool handled = false;
  timed([&] { handled = actor.handle(message); }, handle->get());
  running_lane_access = nullptr;
  running_ = false;
  if (!handled) handle->enqueue(std::move(message), nullptr);
}

bool InlineUnit::hand(troupe::detail::InlineHandler& actor, caf::abstract_actor& itself, Call& call) {
  if (actor.is_moved()) actor.return_inline(Clock::now());
  if (running_ || closed_ || actor.executor_unit() != this) return false;
  CallTaker* const taker = actor.call_taker();
  if (taker == nullptr) return false;
  this_threads_unit = this;
  running_ = true;
  running_lane_access = lane_access_.get();
  timed([&] { taker->take(call); }, &itself);
  running_lane_access = nullptr;
  running_ = false;
  return true;
}

/// Returns whether the scheduler takes the actor over.
bool InlineUnit::note_slow(caf::abstract_actor* actor, Clock::duration took) {
  auto* const guest = dynamic_cast<troupe::detail::InlineHandler*>(actor);
  if (guest == nullptr) return false;
  if (guest->is_moved()) return true;  // it was moved while this unit still had it
  const bool moved = guest->count_slow_handler(Clock::now());
  if (slow_) slow_(actor->id(), took, moved);
  return moved;
}

void InlineUnit::close() {
  closed_ = true;
  this_threads_unit = nullptr;
  while (!ready_.empty()) {
    caf::resumable* const job = ready_.front();
    ready_.pop_front();
    to_scheduler(job);
  }
}

}  // namespace troupe::remote
