#include "runtime/memory/line_watcher.hpp"

#include <array>
#include <cerrno>

#include "runtime/base/thread.hpp"
#include "runtime/memory/detail/futex.hpp"

namespace troupe {
namespace {

constexpr std::chrono::milliseconds kPollEvery{1};

futex::Watched watched(const std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
  return {.expected = expected, .address = reinterpret_cast<std::uintptr_t>(&word)};
}

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

void LineWatcher::ring() noexcept {
  doorbell_.fetch_add(1, std::memory_order_seq_cst);
  futex::wake_all(doorbell_);
}

void LineWatcher::run() {
  std::vector<FutexTimeline*> lines;
  lines.reserve(kMaxLines);
  std::array<futex::Watched, futex::kMaxWatched> words;
  for (;;) {
    const std::uint32_t bell = doorbell_.load(std::memory_order_seq_cst);
    if (stop_.load(std::memory_order_seq_cst)) return;
    {
      const std::lock_guard lock{mutex_};
      lines = lines_;
    }
    std::size_t count = 0;
    words[count++] = watched(doorbell_, bell);
    for (FutexTimeline* line : lines) {
      // The order matters: a change after this load ends the sleep below, one before it is seen by run_due().
      words[count++] = watched(line->change(), line->change().load(std::memory_order_seq_cst));
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
  if (!watchers_.empty() && watchers_.back()->add(line)) return;
  watchers_.push_back(std::make_unique<LineWatcher>(has_waitv_));
  watchers_.back()->add(line);
}

}  // namespace troupe
