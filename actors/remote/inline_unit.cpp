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

/// Messages of one actor before the next has its turn.
constexpr std::size_t kThroughput = 16;
/// Turns before the transport is looked at again.
constexpr int kTurns = 64;
/// A clock costs more than a small handler: one turn in so many is timed.
constexpr unsigned kTimedEvery = 8;

/// What a handler is to blame for: the time since the stopwatch was made, without that in which others had this core.
/// It costs two system calls.
class Stopwatch {
 public:
  Clock::duration read() const {
    const Look now = look();
    return now.preemptions == begun_.preemptions ? now.wall - begun_.wall : now.core - begun_.core;
  }

 private:
  struct Look {
    Clock::duration wall;
    Clock::duration core;
    long preemptions;
  };
  static Look look() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    timespec core{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &core);
    return {Clock::now().time_since_epoch(), std::chrono::seconds(core.tv_sec) + std::chrono::nanoseconds(core.tv_nsec),
            usage.ru_nivcsw};
  }

  Look begun_ = look();
};

thread_local const InlineUnit* this_threads_unit = nullptr;  // whose lane this thread is
thread_local const Gate* running_gate = nullptr;             // while an actor of its unit runs here

}  // namespace

const Gate* running_inline() noexcept { return running_gate; }

InlineUnit::InlineUnit(caf::actor_system& system, std::shared_ptr<Gate> gate, Clock::duration longest, Slow slow)
    : caf::execution_unit(&system), gate_(std::move(gate)), longest_(longest), slow_(std::move(slow)) {}

void InlineUnit::exec_later(caf::resumable* job) {
  if (this_threads_unit == this) {
    if (closed_) return to_scheduler(job);
    return ready_.push_back(job);
  }
  // The job keeps its actor alive, and that this unit.
  const bool posted = gate_->run([this, job] {
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
  running_gate = gate_.get();
  for (int turn = 0; turn < kTurns && !ready_.empty(); ++turn) {
    caf::resumable* const job = ready_.front();
    ready_.pop_front();
    run_one(job);
  }
  running_gate = nullptr;
  running_ = false;
  return true;
}

/// One turn in so many is timed. A long one may be the fault of whoever took this core meanwhile, so it only makes the
/// next turns be looked at more closely, and these count.
void InlineUnit::run_one(caf::resumable* job) {
  const bool timed = ++turns_ % kTimedEvery == 0;
  std::optional<Stopwatch> stopwatch;
  if (suspicious_) stopwatch.emplace();
  const auto begun = timed ? Clock::now() : Clock::time_point{};
  const auto result = job->resume(this, kThroughput);
  bool moved = false;
  if (stopwatch) {
    const auto took = stopwatch->read();
    suspicious_ = took > longest_;
    if (suspicious_) moved = note_slow(job, took);
  } else if (timed) {
    suspicious_ = Clock::now() - begun > longest_;
  }
  if (result == caf::resumable::resume_later) {
    if (moved) return to_scheduler(job);
    return ready_.push_back(job);
  }
  caf::intrusive_ptr_release(job);
}

/// Whether the scheduler takes the actor over.
bool InlineUnit::note_slow(caf::resumable* job, Clock::duration took) {
  auto* const guest = dynamic_cast<detail::InlineGuest*>(job);
  if (guest == nullptr) return false;
  if (guest->is_moved()) return true;  // while this unit still had it
  const bool moved = guest->hold_up();
  if (slow_) slow_(dynamic_cast<caf::abstract_actor*>(job)->id(), took, moved);
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
