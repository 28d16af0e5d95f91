#include "runtime/memory/line_watcher.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "runtime/base/thread.hpp"
#include "runtime/base/thread_affinity.hpp"
#include "runtime/memory/detail/futex.hpp"

namespace troupe {
namespace {

constexpr std::chrono::milliseconds kPollEvery{1};

}  // namespace

LineWatcher::LineWatcher(bool has_waitv) : has_waitv_(has_waitv) {
  lines_.reserve(kMaxLines);
  thread_ = start_thread("troupe-lines", [this] { run(); });
}

LineWatcher::~LineWatcher() {
  stop_.store(true, std::memory_order_seq_cst);
  ring();
  thread_.join();
}

bool LineWatcher::add(FutexTimeline& line) {
  {
    const std::lock_guard lock{mutex_};
    if (lines_.size() == kMaxLines) return false;
    lines_.push_back(&line);
  }
  ring();
  return true;
}

/// The thread works with a copy of the lines. When it makes its next copy, under the mutex, it no longer uses the
/// previous one.
void LineWatcher::forget(Blocking&, std::span<FutexTimeline* const> lines) {
  std::unique_lock lock{mutex_};
  const auto is_gone = [&](FutexTimeline* line) { return std::find(lines.begin(), lines.end(), line) != lines.end(); };
  if (std::erase_if(lines_, is_gone) == 0) return;
  const std::uint64_t number = ++forgotten_;
  ring();
  seen_.wait(lock, [&] { return seen_forgotten_ >= number; });
}

void LineWatcher::ring() noexcept {
  doorbell_.fetch_add(1, std::memory_order_seq_cst);
  futex::wake_all(doorbell_);
}

void LineWatcher::run() {
  std::vector<FutexTimeline*> lines;
  lines.reserve(kMaxLines);
  std::array<futex::Watched, futex::kMaxWatched> words;
  for (;;) {
    // Read before the copy is made: a later change of lines_, or the end, changes the doorbell and so ends the sleep.
    const std::uint32_t bell = doorbell_.load(std::memory_order_seq_cst);
    if (stop_.load(std::memory_order_seq_cst)) return;
    {
      const std::lock_guard lock{mutex_};
      lines = lines_;
      if (std::exchange(seen_forgotten_, forgotten_) != forgotten_) seen_.notify_all();
    }
    std::size_t count = 0;
    words[count++] = futex::watched(doorbell_, bell);
    for (FutexTimeline* line : lines) {
      // The order matters: a change after this load ends the sleep below; run_due() sees a change before it.
      words[count++] = futex::watched(line->change(), line->change().load(std::memory_order_seq_cst));
      if (line->has_wakers()) line->run_due();
    }
    if (has_waitv_ && futex::wait_any({words.data(), count}) == -1 && (errno == ENOSYS || errno == EPERM)) {
      has_waitv_ = false;
    }
    if (!has_waitv_) futex::wait(doorbell_, bell, Clock::now() + kPollEvery);
  }
}

void LineWatchers::watch(FutexTimeline& line) {
  const std::lock_guard lock{mutex_};
  for (const auto& watcher : watchers_)
    if (watcher->add(line)) return;
  const ThreadAffinity affinity(cpus_);  // for the new thread, which would otherwise inherit the CPU of a lane
  watchers_.push_back(std::make_unique<LineWatcher>(has_waitv_));
  watchers_.back()->add(line);
}

void LineWatchers::keep_on(std::vector<std::uint32_t> cpus) {
  const std::lock_guard lock{mutex_};
  cpus_ = std::move(cpus);
}

void LineWatchers::forget(Blocking& blocking, std::span<FutexTimeline* const> lines) {
  std::vector<LineWatcher*> all;
  {
    const std::lock_guard lock{mutex_};
    for (const auto& watcher : watchers_) all.push_back(watcher.get());
  }
  for (LineWatcher* const watcher : all) watcher->forget(blocking, lines);
}

}  // namespace troupe
