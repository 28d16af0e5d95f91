#include <caf/abstract_actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/scheduler/abstract_coordinator.hpp>
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
/// Longer than this, a turn holds up what arrives for others.
constexpr std::chrono::microseconds kLongest{50};

thread_local const InlineUnit* this_threads_unit = nullptr;  // whose lane this thread is
thread_local const Gate* running_gate = nullptr;             // while an actor of its unit runs here

}  // namespace

const Gate* running_inline() noexcept { return running_gate; }

InlineUnit::InlineUnit(caf::actor_system& system, std::shared_ptr<Gate> gate, Slow slow)
    : caf::execution_unit(&system), gate_(std::move(gate)), slow_(std::move(slow)) {}

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

void InlineUnit::run_one(caf::resumable* job) {
  const bool timed = ++turns_ % kTimedEvery == 0;
  const auto begun = timed ? Clock::now() : Clock::time_point{};
  const auto result = job->resume(this, kThroughput);
  bool moved = false;
  if (timed && Clock::now() - begun > kLongest) moved = note_slow(job, Clock::now() - begun);
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
