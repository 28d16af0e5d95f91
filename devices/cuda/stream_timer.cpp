#include "devices/cuda/stream_timer.hpp"

#include <atomic>

#include "devices/cuda/kernels/times.hpp"

namespace troupe::cuda {
namespace {

using std::chrono::nanoseconds;

/// How many laps of the ring a word is ahead of the one that is expected; negative: it is still to come.
int laps_ahead(std::uint64_t word, std::uint32_t number) noexcept {
  const auto lap = static_cast<std::uint16_t>(1 + number / kTimesKept);
  return static_cast<std::int16_t>(static_cast<std::uint16_t>(word >> kTimeBits) - lap);
}

/// Of all times with the bits of `word`, the one nearest to `last`.
nanoseconds whole_time(std::uint64_t word, nanoseconds last) noexcept {
  constexpr unsigned kLost = 64 - kTimeBits;
  const std::uint64_t ahead = (word - static_cast<std::uint64_t>(last.count())) << kLost;
  return last + nanoseconds{static_cast<std::int64_t>(ahead) >> kLost};
}

}  // namespace

bool WorkBorders::needs_border(const TimedWork& next) const noexcept {
  if (open_->kind != next.kind) return true;
  return sees_all_ && (open_->phase != next.phase || open_->label.step != next.label.step ||
                       open_->label.bucket != next.label.bucket);
}

std::optional<TimedWork> WorkBorders::begin(const TimedWork& next) {
  std::optional<TimedWork> ended;
  if (std::exchange(rests_, false))
    ended = TimedWork{.role = TimedWork::Role::gap};
  else if (open_ && needs_border(next))
    ended = open_;
  if (!open_ || ended) open_ = next;
  return ended;
}

TimedWork WorkBorders::end_at_wait() {
  if (std::exchange(rests_, false)) return {.role = TimedWork::Role::gap};
  return std::exchange(open_, {}).value_or(TimedWork{});
}

TimedWork WorkBorders::end_at_signal(const WorkLabel& label) {
  rests_ = false;
  return std::exchange(open_, {}).value_or(TimedWork{.role = TimedWork::Role::work, .label = label});
}

StreamTimer::StreamTimer(std::shared_ptr<const Gpu> gpu) : ring_(std::move(gpu), kTimesKept * sizeof(std::uint64_t)) {}

void StreamTimer::expect(std::span<const TimedWork> works) {
  if (works.empty()) return;
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock{mutex_};
  for (const TimedWork& work : works) expected_.push_back({work, now});
}

/// A stream that is far ahead of its reader overwrites times. What they ended is then not counted.
void StreamTimer::take() noexcept {
  const std::lock_guard lock{mutex_};
  while (!expected_.empty()) {
    const std::uint64_t word = std::atomic_ref{ring()[taken_ % kTimesKept]}.load(std::memory_order_acquire);
    const int ahead = laps_ahead(word, taken_);
    if (ahead < 0) return;
    if (ahead == 0)
      take_one(expected_.front(), word);
    else
      has_last_ = false;
    expected_.pop_front();
    ++taken_;
  }
}

void StreamTimer::take_one(const Expected& ended, std::uint64_t word) noexcept {
  const nanoseconds now = whole_time(word & kTimeMask, last_);
  clock_.saw(now, ended.launched, Clock::now());
  // Not before the last one, which was found with the clocks compared less well.
  const Clock::time_point on_host = std::max(clock_.host_time(now), last_on_host_);
  if (has_last_) {
    const TimedWork& work = ended.work;
    constexpr std::chrono::microseconds kLeast{1};  // shorter ones are too many for a trace
    const bool shows = work.role == TimedWork::Role::work || work.role == TimedWork::Role::wait;
    if (row_ != nullptr && shows && now - last_ >= kLeast) row_->span(work.phase, last_on_host_, on_host, work.label);
    add(work, std::max(now - last_, nanoseconds::zero()));
  }
  last_ = now, last_on_host_ = on_host, has_last_ = true;
}

void StreamTimer::add(const TimedWork& work, nanoseconds span) noexcept {
  switch (work.role) {
    case TimedWork::Role::work: return spent_.did(work.kind, span, work.begins_batch);
    case TimedWork::Role::wait: return spent_.waited(span);
    case TimedWork::Role::between: return spent_.did_meanwhile(WorkKind::exchange, span);
    case TimedWork::Role::gap: return spent_.had_nothing(span);
  }
}

StreamTimes StreamTimer::times() noexcept {
  take();
  return spent_.times();
}

}  // namespace troupe::cuda
