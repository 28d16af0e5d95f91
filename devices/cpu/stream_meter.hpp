#pragma once

#include <utility>
#include <variant>

#include "devices/cpu/operations.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/compute/work_times.hpp"

namespace troupe::cpu {

/// Measures how a stream's thread spends its time, reading the clock once after each operation. Threads: the stream's
/// writes, any may read.
class StreamMeter {
 public:
  /// The time since the last call was spent with an empty queue. Time before the first work is not counted.
  void had_nothing() noexcept {
    const auto span = lap();
    if (std::exchange(begun_, true)) spent_.had_nothing(span);
  }

  /// The time of the last call.
  Clock::time_point last() const noexcept { return last_; }

  /// The time since the last call was spent on `operation`.
  void did(const Operation& operation) noexcept {
    const auto span = lap();
    if (std::holds_alternative<AwaitPoint>(operation)) return spent_.waited(span);
    const WorkKind kind = kind_of(operation);
    // A step's sums are set before its batch is waited for; this copy is not the work that the wait was for.
    const auto* const copy = std::get_if<CopyBytes>(&operation);
    if (copy != nullptr && copy->size_bytes == sizeof(StepSums)) return spent_.did_meanwhile(kind, span);
    const auto* const program = std::get_if<RunProgram>(&operation);
    spent_.did(kind, span,
               program != nullptr && (kind == WorkKind::evaluate || program->part == ProgramPart::forward_and_loss ||
                                      program->part == ProgramPart::no_rows));
  }

  StreamTimes times() const noexcept { return spent_.times(); }

 private:
  static WorkKind kind_of(const Operation& operation) noexcept {
    if (std::holds_alternative<AddUpdateSquares>(operation) || std::holds_alternative<Update>(operation) ||
        std::holds_alternative<WeightedDelta>(operation))
      return WorkKind::update;
    if (std::holds_alternative<CopyBytes>(operation) || std::holds_alternative<Digest>(operation))
      return WorkKind::copy;
    const auto* const program = std::get_if<RunProgram>(&operation);
    if (program == nullptr) return WorkKind::exchange;
    return program->part == ProgramPart::evaluate ? WorkKind::evaluate : WorkKind::compute;
  }

  StreamTimes::Span lap() noexcept {
    const Clock::time_point now = Clock::now();
    return now - std::exchange(last_, now);
  }

  WorkTimes spent_;
  Clock::time_point last_ = Clock::now();
  bool begun_ = false;
};

}  // namespace troupe::cpu
