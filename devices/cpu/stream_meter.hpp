#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <variant>

#include "devices/cpu/operations.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/compute/stream_times.hpp"

namespace troupe::cpu {

/// Adds up how a stream's thread spends its time, reading the clock once after each operation. The purpose of a wait is
/// known from the operation after it: a wait, or an empty queue, just before a batch's first work was for that batch;
/// other waits are for other ranks, and other empty queues for the host. Threads: the stream's writes, any may read.
class StreamMeter {
 public:
  /// The time since the last call was spent with an empty queue. Time before the first work is not counted.
  void had_nothing() noexcept {
    const auto span = lap();
    if (begun_) empty_ += span;
    begun_ = true;
  }

  /// The time of the last call.
  Clock::time_point last() const noexcept { return last_; }

  /// The time since the last call was spent on `operation`.
  void did(const Operation& operation) noexcept {
    const auto span = lap();
    if (std::holds_alternative<AwaitPoint>(operation)) {
      waited_ += span;
      return;
    }
    const Kind kind = kind_of(operation);
    // A step's sums are set before its batch is waited for; this copy is not the work that the wait was for.
    const auto* const copy = std::get_if<CopyBytes>(&operation);
    if (copy != nullptr && copy->size_bytes == sizeof(StepSums)) return add(kind, span);
    const auto* const program = std::get_if<RunProgram>(&operation);
    const bool first =
        program != nullptr && (kind == Kind::evaluate || program->part == ProgramPart::forward_and_loss ||
                               program->part == ProgramPart::no_rows);
    const Kind of_batch = kind == Kind::evaluate ? Kind::evaluate : Kind::load;
    add(first ? of_batch : Kind::exchange, waited_);
    add(first ? of_batch : Kind::idle, empty_);
    add(kind, span);
    waited_ = empty_ = {};
  }

  StreamTimes times() const noexcept {
    const auto spent = [this](Kind kind) {
      return StreamTimes::Span{spent_[static_cast<std::size_t>(kind)].load(std::memory_order_relaxed)};
    };
    return {spent(Kind::load),     spent(Kind::compute), spent(Kind::exchange), spent(Kind::update),
            spent(Kind::evaluate), spent(Kind::copy),    spent(Kind::idle)};
  }

 private:
  enum class Kind : std::uint8_t { load, compute, exchange, update, evaluate, copy, idle, count };

  static Kind kind_of(const Operation& operation) noexcept {
    if (std::holds_alternative<AddUpdateSquares>(operation) || std::holds_alternative<Update>(operation) ||
        std::holds_alternative<WeightedDelta>(operation))
      return Kind::update;
    if (std::holds_alternative<CopyBytes>(operation) || std::holds_alternative<Digest>(operation)) return Kind::copy;
    const auto* const program = std::get_if<RunProgram>(&operation);
    if (program == nullptr) return Kind::exchange;
    return program->part == ProgramPart::evaluate ? Kind::evaluate : Kind::compute;
  }

  StreamTimes::Span lap() noexcept {
    const Clock::time_point now = Clock::now();
    const auto span = now - last_;
    last_ = now;
    return span;
  }

  void add(Kind kind, StreamTimes::Span span) noexcept {
    std::atomic<std::int64_t>& sum = spent_[static_cast<std::size_t>(kind)];
    sum.store(sum.load(std::memory_order_relaxed) + span.count(), std::memory_order_relaxed);  // the only writer
  }

  alignas(64) std::array<std::atomic<std::int64_t>, static_cast<std::size_t>(Kind::count)> spent_{};
  Clock::time_point last_ = Clock::now();
  StreamTimes::Span waited_{};  // since the last operation that was not a wait
  StreamTimes::Span empty_{};
  bool begun_ = false;
};

}  // namespace troupe::cpu
