#include "runtime/memory/futex_timeline.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/thread.hpp"
#include "runtime/base/words.hpp"
#include "runtime/memory/detail/futex.hpp"
#include "runtime/memory/detail/overdue.hpp"

namespace troupe {
namespace {

enum Poison : std::uint32_t { kNotPoisoned = 0, kBeingWritten = 1, kPoisoned = 2 };

/// Writing the reason takes nanoseconds; a poisoner that takes this long was killed while it wrote.
constexpr std::chrono::milliseconds kWriting{20};

/// As much of a reason as fits into a word without its last UTF-8 character being cut, and what is written behind it.
std::pair<std::string_view, std::string_view> fitted(std::string_view reason) noexcept {
  constexpr std::string_view kCut = "...";
  constexpr std::size_t kMost = sizeof TimelineWord::poison_text - 1;
  if (reason.size() <= kMost) return {reason, ""};
  std::size_t length = kMost - kCut.size();
  while (length > 0 && (static_cast<unsigned char>(reason[length]) & 0xC0) == 0x80) --length;
  return {reason.substr(0, length), kCut};
}

}  // namespace

Status detail::overdue(const Blocking& blocking, const Timeline& line, std::uint64_t at, Clock::time_point begun,
                       std::string_view what) {
  const TimelineId id = line.id();
  return {Code::timeout,
          text("waited ", seconds(Clock::now() - begun), " for ", what, " (thread ", blocking.thread(), "; line ",
               id.arena.value, ":", id.index, " stands at ", line.value(), ", wanted ", at, ")")};
}

FutexTimeline::~FutexTimeline() {
  for (;;) {
    Entry entry{};
    {
      const std::lock_guard lock{mutex_};
      if (entries_.empty()) break;
      entry = entries_.back();
      entries_.pop_back();
      note_next();
    }
    entry.waker->reached({id_, entry.at}, {Code::aborted, "the address space of the line has ended"});
  }
}

void FutexTimeline::signal(std::uint64_t to) noexcept {
  // Nobody else moves the value between the two calls. A poisoner may set its bit between them, which an addition,
  // other than a store of `to`, leaves set.
  add(to - value());
}

void FutexTimeline::add(std::uint64_t count) noexcept {
  const std::uint64_t to = (word_.value.fetch_add(count, std::memory_order_seq_cst) & ~kPoisonedWord) + count;
  const bool asleep = word_.sleepers.load(std::memory_order_seq_cst) != 0;
  const bool due = next_.load(std::memory_order_seq_cst) <= to;
  if (asleep) {
    bool others;
    {
      // All wakers of this object together are counted as one of the word's sleepers, though run_due() calls them
      // without a system call. note_next() changes both that number and `counted_`, under this mutex.
      const std::lock_guard lock{mutex_};
      others = word_.sleepers.load(std::memory_order_seq_cst) > (counted_ ? 1u : 0u);
    }
    if (others) wake_sleepers();
  }
  if (due) run_due();
}

void FutexTimeline::wake_sleepers() noexcept {
  word_.change.fetch_add(1, std::memory_order_seq_cst);
  futex::wake_all(word_.change);
}

void FutexTimeline::poison(const Status& why) noexcept {
  std::uint32_t expected = kNotPoisoned;
  const bool first = word_.poisoned.compare_exchange_strong(expected, kBeingWritten, std::memory_order_seq_cst);
  // Before the reason is written: if the poisoner dies while it writes, the waits have already ended.
  word_.value.fetch_or(kPoisonedWord, std::memory_order_seq_cst);
  if (first) {
    const std::string_view reason = why.ok() ? std::string_view{"poisoned without a reason"} : why.text();
    const auto [kept, mark] = fitted(reason);
    word_.poison_code = static_cast<std::uint16_t>(why.ok() ? Code::aborted : why.code());
    std::memcpy(word_.poison_text, kept.data(), kept.size());
    std::memcpy(word_.poison_text + kept.size(), mark.data(), mark.size());
    word_.poison_text[kept.size() + mark.size()] = '\0';
    whole_ = why;  // read only after the next store
    word_.poisoned.store(kPoisoned, std::memory_order_seq_cst);
  }
  wake_sleepers();  // even if another process was first: it may have been killed before it woke the sleepers
  run_due();
}

Status FutexTimeline::status() const noexcept {
  std::uint32_t state = word_.poisoned.load(std::memory_order_acquire);
  if (state == kNotPoisoned) return {};
  const Deadline written = Deadline::after(kWriting);
  while (state == kBeingWritten && !written.passed()) {
    sched_yield();
    state = word_.poisoned.load(std::memory_order_acquire);
  }
  if (state != kPoisoned) return {Code::peer_lost, "poisoned by a process that died while it wrote the reason"};
  // Another process wrote this: trust neither the code nor the terminating zero.
  if (word_.poison_code == 0 || word_.poison_code > static_cast<std::uint16_t>(Code::corrupt)) {
    return {Code::corrupt, text("poisoned with the unknown code ", word_.poison_code)};
  }
  const std::string_view told{word_.poison_text, strnlen(word_.poison_text, sizeof word_.poison_text)};
  const auto code = static_cast<Code>(word_.poison_code);
  const auto [kept, mark] = fitted(whole_.text());
  const bool is_own = told.size() == kept.size() + mark.size() && told.starts_with(kept) && told.ends_with(mark);
  return whole_.code() == code && is_own ? whole_ : Status{code, std::string{told}};
}

void FutexTimeline::wake(std::uint64_t at, Waker& waker) {
  if (value() >= at) return waker.reached({id_, at}, {});
  if (watch_ != nullptr) {
    std::call_once(watched_, [this] { watch_->watch(*this); });
  }
  enter(at, waker);
  // Who signalled before enter() has not seen this waker, so this thread looks once more.
  if (word_.value.load(std::memory_order_seq_cst) >= at) run_due();
}

void FutexTimeline::enter(std::uint64_t at, Waker& waker) {
  const std::lock_guard lock{mutex_};
  const auto later = [](const Entry& entry, std::uint64_t point) { return entry.at > point; };
  entries_.insert(std::lower_bound(entries_.begin(), entries_.end(), at, later), Entry{at, &waker});
  note_next();
}

/// Tells signallers of the entries: those in other processes by `sleepers`, those in this process by `next_`. Both are
/// stored before wake() reads the value again. So a signaller either sees the new entry, or has raised the value before
/// that read; no point is missed.
void FutexTimeline::note_next() noexcept {
  const bool count = watch_ != nullptr && !entries_.empty();
  if (count != counted_) {
    if (count) {
      word_.sleepers.fetch_add(1, std::memory_order_seq_cst);
    } else {
      word_.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    }
    counted_ = count;
  }
  next_.store(entries_.empty() ? kNone : entries_.back().at, std::memory_order_seq_cst);
}

/// A waker is removed under the mutex, so it is called once even if several threads are here, and it is called without
/// the mutex, because it may register the next waker. The status is read before the values: if a point was reached
/// before the poison, the waker gets the point and not the poison. A poison that comes after the status was read is not
/// missed: who poisons the line calls run_due() afterwards, and in other processes their LineWatch does.
void FutexTimeline::run_due() noexcept {
  const Status end = status();
  for (;;) {
    Entry entry{};
    bool reached;
    {
      const std::lock_guard lock{mutex_};
      if (entries_.empty()) return;
      entry = entries_.back();
      reached = (word_.value.load(std::memory_order_seq_cst) & ~kPoisonedWord) >= entry.at;
      if (!reached && end.ok()) return;
      entries_.pop_back();
      note_next();
    }
    entry.waker->reached({id_, entry.at}, reached ? Status{} : end);
  }
}

Status FutexTimeline::wait(Blocking& blocking, std::uint64_t at, Deadline deadline, std::string_view what) {
  if (value() >= at) return {};
  const auto begin = Clock::now();
  if (!poll(at) && !sleep(at, deadline)) return detail::overdue(blocking, *this, at, begin, what);
  return value() >= at ? Status{} : status();
}

/// True when the wait is over.
bool FutexTimeline::poll(std::uint64_t at) const noexcept {
  const auto over = [&] { return word() >= at; };
  const auto span = spin_.load(std::memory_order_relaxed);
  if (span.count() == 0) return over();
  const Deadline end = Deadline::after(span);
  do {
    for (int i = 0; i < 16; ++i) {
      if (over()) return true;
      pause_cpu();
    }
  } while (!end.passed());
  return false;
}

/// True when the wait is over, false at the deadline.
bool FutexTimeline::sleep(std::uint64_t at, Deadline deadline) noexcept {
  const auto over = [&] { return word_.value.load(std::memory_order_seq_cst) >= at; };
  word_.sleepers.fetch_add(1, std::memory_order_seq_cst);
  bool done;
  for (;;) {
    const std::uint32_t seen = word_.change.load(std::memory_order_seq_cst);
    done = over();
    if (done) break;
    if (futex::wait(word_.change, seen, deadline.at()) == -1 && errno == ETIMEDOUT) {
      done = over();
      break;
    }
  }
  word_.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return done;
}

}  // namespace troupe
