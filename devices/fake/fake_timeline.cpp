#include "devices/fake/fake_timeline.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe {
namespace {

/// How long a waiter with nothing to drive sleeps; its point may depend on timelines that do not notify it.
constexpr std::chrono::microseconds kLookAgain{200};

}  // namespace

FakeTimeline::~FakeTimeline() {
  for (const Entry& entry : std::exchange(entries_, {})) {
    entry.waker->reached({id_, entry.at}, {Code::aborted, "the line has ended"});
  }
}

std::uint64_t FakeTimeline::value() const noexcept {
  const std::lock_guard lock{mutex_};
  return value_;
}

std::uint64_t FakeTimeline::word() const noexcept {
  const std::lock_guard lock{mutex_};
  return poison_.ok() ? value_ : value_ | kPoisonedWord;
}

void FakeTimeline::signal(std::uint64_t to) noexcept {
  {
    const std::lock_guard lock{mutex_};
    value_ = std::max(value_, to);
  }
  changed_.notify_all();
  wake_due();
}

void FakeTimeline::add(std::uint64_t count) noexcept {
  {
    const std::lock_guard lock{mutex_};
    value_ += count;
  }
  changed_.notify_all();
  wake_due();
}

void FakeTimeline::poison(const Status& why) noexcept {
  {
    const std::lock_guard lock{mutex_};
    if (poison_.ok()) poison_ = why.ok() ? Status{Code::aborted, "poisoned without a reason"} : why;
  }
  changed_.notify_all();
  wake_due();
}

Status FakeTimeline::status() const noexcept {
  const std::lock_guard lock{mutex_};
  return poison_;
}

void FakeTimeline::wake(std::uint64_t at, Waker& waker) {
  {
    const std::lock_guard lock{mutex_};
    entries_.push_back({at, &waker});
  }
  wake_due();
}

/// Removes each waker from the list before calling it, so that it is called once and may register again.
void FakeTimeline::wake_due() noexcept {
  for (;;) {
    Entry due{};
    Status status;
    {
      const std::lock_guard lock{mutex_};
      const auto is_due = [this](const Entry& entry) { return entry.at <= value_ || !poison_.ok(); };
      const auto found = std::find_if(entries_.begin(), entries_.end(), is_due);
      if (found == entries_.end()) return;
      due = *found;
      entries_.erase(found);
      if (due.at > value_) status = poison_;
    }
    due.waker->reached({id_, due.at}, status);
  }
}

Status FakeTimeline::wait(Blocking& blocking, std::uint64_t at, Deadline deadline, std::string_view what) {
  for (;;) {
    {
      std::unique_lock lock{mutex_};
      const auto over = [&] { return value_ >= at || !poison_.ok(); };
      if (!drive_) changed_.wait_until(lock, deadline.at(), over);
      if (value_ >= at) return {};
      if (!poison_.ok()) return poison_;
      if (deadline.passed()) {
        return {Code::timeout, text("waited for ", what, " (thread ", blocking.thread(), "; fake line ", id_.index,
                                    " stands at ", value_, ", wanted ", at, ")")};
      }
    }
    if (drive_ && !drive_()) {
      std::unique_lock lock{mutex_};
      changed_.wait_for(lock, kLookAgain, [&] { return value_ >= at || !poison_.ok(); });
    }
  }
}

}  // namespace troupe
