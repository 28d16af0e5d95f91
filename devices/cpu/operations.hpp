#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <variant>

#include "runtime/compute/rules/rule.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/compute/update_pass.hpp"
#include "runtime/memory/timeline.hpp"

namespace troupe::cpu {

class ProgramSet;

/// A contiguous array of addresses of things of one kind.
struct Operands {
  const void* const* data = nullptr;
  std::uint32_t count = 0;

  template <class T>
  std::span<const T* const> of() const noexcept {
    return {reinterpret_cast<const T* const*>(data), count};
  }
  friend bool operator==(const Operands& a, const Operands& b) noexcept {
    return a.count == b.count && (a.data == b.data || (a.data != nullptr && b.data != nullptr &&
                                                       std::equal(a.data, a.data + a.count, b.data)));
  }
};

// The work of a stream's thread, as plain data; addresses are those of this process.
struct AwaitPoint {
  Timeline* line;
  std::uint64_t value;
  friend bool operator==(const AwaitPoint&, const AwaitPoint&) = default;
};
struct SignalPoint {
  Timeline* line;
  std::uint64_t value;
  friend bool operator==(const SignalPoint&, const SignalPoint&) = default;
};
struct CopyBytes {
  std::byte* to;
  const std::byte* from;
  std::uint64_t size_bytes;
  friend bool operator==(const CopyBytes&, const CopyBytes&) = default;
};
struct SumUp {
  StepSums* total;
  Operands parts;
  friend bool operator==(const SumUp&, const SumUp&) = default;
};
struct Reduce {
  float* to;
  std::uint64_t count;
  Operands parts;
  StepSums* sums;  // of a NormCheck, as are the fields below; null: nothing is reported
  std::uint64_t first_element;
  const Rank* ranks;
  std::uint64_t count_ranks;
  bool squares;
  friend bool operator==(const Reduce&, const Reduce&) = default;
};
struct WeightedDelta {
  float* to;
  const float* anchor;
  const float* from;
  std::uint64_t count;
  const StepSums* sums;
  friend bool operator==(const WeightedDelta&, const WeightedDelta&) = default;
};
struct ConvertElements {
  void* to;
  const void* from;
  std::uint64_t count;
  DType to_type, from_type;
  float* residual;  // null: no residual is kept
  bool adds;        // to f32
  friend bool operator==(const ConvertElements&, const ConvertElements&) = default;
};
struct ClearBytes {
  std::byte* at;
  std::uint64_t size_bytes;
  friend bool operator==(const ClearBytes&, const ClearBytes&) = default;
};
struct Digest {
  std::uint64_t* to;
  const std::byte* of;
  std::uint64_t size_bytes;
  friend bool operator==(const Digest&, const Digest&) = default;
};
struct AddUpdateSquares {
  RuleStep rule;
  UpdateAddresses stripe;
  const float* sum;
  const StepSums* total;
  friend bool operator==(const AddUpdateSquares&, const AddUpdateSquares&) = default;
};
struct Update {
  RuleStep rule;
  std::uint64_t number;
  UpdateAddresses stripe;
  Operands contributions;
  const StepSums* total;
  friend bool operator==(const Update&, const Update&) = default;
};
/// forward_and_loss: the last piece of a forward pass, and the losses after it.
enum class ProgramPart : std::uint8_t { forward, forward_and_loss, backward, evaluate, products, no_rows };
struct RunProgram {
  ProgramSet* programs;
  ProgramPart part;
  std::uint32_t segment;  // of forward or backward
  const std::byte* batch;
  StepSums* sums;
  std::uint32_t rows = 0;      // the rows that count for the loss
  std::uint32_t computed = 0;  // the rows that are computed, at least `rows`
  friend bool operator==(const RunProgram&, const RunProgram&) = default;
};
class RecordedWork;
/// All operations that were recorded together, with the values of a block; see recording.hpp.
struct Replay {
  const RecordedWork* work;
  void* block;
  friend bool operator==(const Replay&, const Replay&) = default;
};
using Operation = std::variant<AwaitPoint, SignalPoint, CopyBytes, SumUp, Reduce, WeightedDelta, ConvertElements,
                               ClearBytes, Digest, AddUpdateSquares, Update, RunProgram, Replay>;
static_assert(std::is_trivially_copyable_v<Operation>);

/// Operations from one enqueuing thread to the stream's thread, in memory that is allocated once.
class OperationRing {
 public:
  static constexpr std::uint32_t kOperations = 8192;  // three steps of 1,024 ranks on a node
  static constexpr std::uint32_t kOperands = 32768;

  // Called by the enqueuing thread.
  bool full() const noexcept { return written_ - read_.load(std::memory_order_acquire) == kOperations; }
  /// Takes space for `count` addresses in one piece; empty if there is none.
  std::span<const void*> take_operands(std::size_t count, Operands& taken) noexcept {
    const std::uint32_t at = operands_written_ % kOperands;
    const auto skip = static_cast<std::uint32_t>(at + count > kOperands ? kOperands - at : 0);
    const std::uint32_t used = operands_written_ - operands_read_.load(std::memory_order_acquire);
    if (count > kOperands || used + skip + count > kOperands) return {};
    operands_written_ += skip;
    const std::span<const void*> room{operands_.data() + operands_written_ % kOperands, count};
    taken = {room.data(), static_cast<std::uint32_t>(count)};
    operands_written_ += taken.count;
    return room;
  }
  /// Passes on one operation, which belongs to `label`. The ring must not be full().
  void push(const Operation& operation, const WorkLabel& label) noexcept {
    slots_[written_ % kOperations] = {operation, operands_written_, label};
    ++written_;
    published_.store(written_, std::memory_order_release);
  }

  // Called by the stream's thread.
  bool empty() const noexcept {
    return published_.load(std::memory_order_acquire) == read_.load(std::memory_order_relaxed);
  }
  /// The oldest operation. The ring must not be empty().
  const Operation& front() const noexcept {
    return slots_[read_.load(std::memory_order_relaxed) % kOperations].operation;
  }
  const WorkLabel& label() const noexcept { return slots_[read_.load(std::memory_order_relaxed) % kOperations].label; }
  /// The operation after front(); null: there is none yet.
  const Operation* second() const noexcept {
    const std::uint32_t next = read_.load(std::memory_order_relaxed) + 1;
    return published_.load(std::memory_order_acquire) == next ? nullptr : &slots_[next % kOperations].operation;
  }
  void pop() noexcept {
    const std::uint32_t read = read_.load(std::memory_order_relaxed);
    operands_read_.store(slots_[read % kOperations].operands_end, std::memory_order_release);
    read_.store(read + 1, std::memory_order_release);
  }

 private:
  struct Entry {
    Operation operation;
    std::uint32_t operands_end;
    WorkLabel label;
  };
  // Counters wrap around; the capacities are powers of two.
  std::uint32_t written_ = 0;  // read only by the enqueuing thread
  std::uint32_t operands_written_ = 0;
  alignas(64) std::atomic<std::uint32_t> published_{0};
  alignas(64) std::atomic<std::uint32_t> read_{0};
  std::atomic<std::uint32_t> operands_read_{0};
  std::array<Entry, kOperations> slots_{};
  std::array<const void*, kOperands> operands_{};
};

}  // namespace troupe::cpu
