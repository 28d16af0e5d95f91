#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "runtime/compute/stream_times.hpp"

namespace troupe {

/// What a piece of a stream's work is, for its times.
enum class WorkKind : std::uint8_t { load, compute, exchange, update, evaluate, copy, idle, count };

/// Adds up how a stream spends its time, from the lengths of its pieces of work in their order. The purpose of a wait
/// is known from the work after it: a wait, or an empty queue, just before a batch's first work was for that batch;
/// other waits are for other ranks, and other empty queues for the host. Threads: one writes at a time, any may read.
class WorkTimes {
 public:
  using Span = StreamTimes::Span;

  void had_nothing(Span span) noexcept { empty_ += span; }
  void waited(Span span) noexcept { waited_ += span; }
  /// `begins_batch`: it is the first work of a batch.
  void did(WorkKind kind, Span span, bool begins_batch = false) noexcept {
    const WorkKind of_batch = kind == WorkKind::evaluate ? WorkKind::evaluate : WorkKind::load;
    add(begins_batch ? of_batch : WorkKind::exchange, waited_);
    add(begins_batch ? of_batch : WorkKind::idle, empty_);
    add(kind, span);
    waited_ = empty_ = {};
  }
  /// Work that no wait was for: what it waited for comes after it.
  void did_meanwhile(WorkKind kind, Span span) noexcept { add(kind, span); }

  StreamTimes times() const noexcept {
    const auto spent = [this](WorkKind kind) {
      return Span{spent_[static_cast<std::size_t>(kind)].load(std::memory_order_relaxed)};
    };
    return {spent(WorkKind::load),     spent(WorkKind::compute), spent(WorkKind::exchange), spent(WorkKind::update),
            spent(WorkKind::evaluate), spent(WorkKind::copy),    spent(WorkKind::idle)};
  }

 private:
  void add(WorkKind kind, Span span) noexcept {
    std::atomic<std::int64_t>& sum = spent_[static_cast<std::size_t>(kind)];
    sum.store(sum.load(std::memory_order_relaxed) + span.count(), std::memory_order_relaxed);  // the only writer
  }

  alignas(64) std::array<std::atomic<std::int64_t>, static_cast<std::size_t>(WorkKind::count)> spent_{};
  Span waited_{};  // since the last work that was not a wait
  Span empty_{};
};

}  // namespace troupe
