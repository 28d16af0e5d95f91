#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>

#include "runtime/base/clock.hpp"

namespace troupe {

/// What a piece of work belongs to.
struct WorkLabel {
  static constexpr std::uint64_t kNoStep = ~std::uint64_t{0};
  static constexpr std::uint32_t kNoBucket = ~std::uint32_t{0};
  std::uint64_t step = kNoStep;
  std::uint32_t bucket = kNoBucket;  // in the replica's numbering, or in a group's
};

class Trace;

/// Is told where pieces of work begin and end, as they happen, on the thread that does them: a profiler, which shows
/// them as nested ranges. Threads: any.
class RangeListener {
 public:
  virtual void begin_range(const char* text) noexcept = 0;
  /// Of this thread's newest range.
  virtual void end_range() noexcept = 0;

 protected:
  ~RangeListener() = default;  // outlives those who tell it
};

/// The work of one stream, lane or actor, with its times. Threads: one writer at a time.
class TraceRow {
 public:
  /// `phase` is a string literal. Does nothing if the trace is full.
  void span(const char* phase, Clock::time_point begin, Clock::time_point end, WorkLabel label = {}) noexcept;
  /// Tells the trace's listener, if there is one, of a piece of work that begins or ends on this thread now.
  void begin_range(const char* phase, const WorkLabel& label) const noexcept;
  void end_range() const noexcept;

 private:
  friend class Trace;
  struct Span {
    const char* phase;
    std::int64_t begin_ns, end_ns;  // by the steady clock
    WorkLabel label;
  };
  static constexpr std::size_t kBlock = 1024;
  struct Block {
    std::array<Span, kBlock> spans;
  };
  explicit TraceRow(Trace& its_trace, std::string its_name) : trace_(its_trace), name_(std::move(its_name)) {}
  Block* block_for(std::size_t index) noexcept;

  Trace& trace_;
  const std::string name_;
  std::mutex mutex_;  // guards blocks_
  std::deque<std::unique_ptr<Block>> blocks_;
  std::atomic<std::size_t> written_{0};  // number of complete spans, which may be read
};

/// The work of a process's threads with its times, for people: rows of spans, written as the JSON of Chrome's tracing
/// and Perfetto. Rows are kept in memory until write(); a full trace drops new spans. Threads: any.
class Trace {
 public:
  static constexpr std::uint64_t kMostSpans = std::uint64_t{1} << 20;

  /// Keeps at most `most_spans` (48 bytes each). `listener` outlives the trace; null: there is none.
  explicit Trace(std::uint64_t most_spans = kMostSpans, RangeListener* listener = nullptr)
      : left_(static_cast<std::int64_t>(most_spans)), listener_(listener) {}
  /// A new row, shown below the earlier ones; lives as long as the trace.
  TraceRow& row(std::string name);
  /// Writes an array of events, one per line. Times are microseconds since the Unix epoch, by the realtime clock as it
  /// was when the trace was made. The rows appear under the number `process` and the name `name`.
  void write(std::ostream& out, std::uint32_t process, const std::string& name) const;
  /// Whether spans were dropped because there was no room.
  bool is_full() const noexcept { return left_.load(std::memory_order_relaxed) < 0; }

 private:
  friend class TraceRow;
  const std::int64_t epoch_ns_ = realtime_less_steady();
  std::atomic<std::int64_t> left_;
  RangeListener* const listener_;
  mutable std::mutex mutex_;  // guards rows_
  std::deque<std::unique_ptr<TraceRow>> rows_;

  static std::int64_t realtime_less_steady() noexcept;
};

/// The file into which one of several processes writes its part of the trace `file`.
std::string trace_part(const std::string& file, std::uint32_t process);
/// Joins the existing parts of processes 0 to `count` - 1 into one trace, which replaces `file`, and removes them.
/// Returns how many there were; 0: nothing was written. Throws Error{environment} if `file` cannot be written; the
/// parts are removed then, too.
std::uint32_t join_trace_parts(const std::string& file, std::uint32_t count);

/// A span in `row` from this object's construction to its destruction, on one thread; null: none is recorded.
class TraceSpan {
 public:
  TraceSpan(TraceRow* row, const char* phase, WorkLabel label = {}) noexcept
      : row_(row), phase_(phase), label_(label), begin_(row == nullptr ? Clock::time_point{} : Clock::now()) {
    if (row_ != nullptr) row_->begin_range(phase_, label_);
  }
  ~TraceSpan() {
    if (row_ == nullptr) return;
    row_->end_range();
    row_->span(phase_, begin_, Clock::now(), label_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  TraceRow* const row_;
  const char* const phase_;
  const WorkLabel label_;
  const Clock::time_point begin_;
};

}  // namespace troupe
