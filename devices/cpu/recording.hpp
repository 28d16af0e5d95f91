#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "devices/cpu/operations.hpp"
#include "runtime/compute/program.hpp"

namespace troupe::cpu {

/// An operation's operands; null: it has none.
Operands* operands_of(auto&) noexcept { return nullptr; }
inline Operands* operands_of(SumUp& o) noexcept { return &o.parts; }
inline Operands* operands_of(Reduce& o) noexcept { return &o.parts; }
inline Operands* operands_of(Update& o) noexcept { return &o.contributions; }

// The fields of each operation that may differ between replays: `visit` is called with them, always in the same order.
// Everything else is the form. A step's sums are in rings, so their addresses differ, too.
template <class T>
void for_values(T&, auto&&) {}
void for_values(AwaitPoint& o, auto&& visit) { visit(o.value); }
void for_values(SignalPoint& o, auto&& visit) { visit(o.value); }
void for_values(CopyBytes& o, auto&& visit) {
  if (o.size_bytes != sizeof(StepSums)) return;
  visit(o.to);
  visit(o.from);
}
void for_values(SumUp& o, auto&& visit) {
  visit(o.total);
  visit(o.parts);
}
void for_values(Reduce& o, auto&& visit) { visit(o.sums); }
void for_values(WeightedDelta& o, auto&& visit) { visit(o.sums); }
void for_values(Digest& o, auto&& visit) { visit(o.to); }
void for_values(AddUpdateSquares& o, auto&& visit) {
  visit(o.rule);
  visit(o.total);
}
void for_values(Update& o, auto&& visit) {
  visit(o.rule);
  visit(o.number);
  visit(o.total);
}
void for_values(RunProgram& o, auto&& visit) {
  visit(o.batch);
  visit(o.sums);
  visit(o.rows);
  visit(o.computed);
}

/// Moves the values of operations to the end of `words`.
struct TakeValues {
  std::vector<std::uint64_t>& words;

  template <class T>
  void operator()(T& field) const {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t first = words.size();
    words.resize(first + (sizeof field + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
    std::memcpy(words.data() + first, &field, sizeof field);
    field = T{};
  }
  void operator()(Operands& parts) const {
    for (std::uint32_t i = 0; i < parts.count; ++i) words.push_back(reinterpret_cast<std::uintptr_t>(parts.data[i]));
    parts.data = nullptr;
  }
};

/// Puts them back into the operations.
struct GiveValues {
  const std::uint64_t*& words;

  template <class T>
  void operator()(T& field) const {
    std::memcpy(static_cast<void*>(&field), words, sizeof field);
    words += (sizeof field + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
  }
  void operator()(Operands& parts) const {
    parts.data = reinterpret_cast<const void* const*>(words);
    words += parts.count;
  }
};

/// Operations without their values, and what each of them belongs to, except the step.
struct Form {
  std::vector<Operation> operations;
  std::vector<std::uint32_t> buckets;
  friend bool operator==(const Form& a, const Form& b) {
    return a.buckets == b.buckets && a.operations == b.operations;
  }
};

/// A form with its own operands, and step blocks for the replays that have not finished.
class RecordedWork final : public Program {
 public:
  static constexpr std::size_t kBlocks = 8;

  struct Block {
    std::uint64_t step = 0;  // the step that the work belongs to
    std::vector<std::uint64_t> words;
    std::atomic<bool> busy{false};
  };

  /// Copies `form`, whose operands may then be freed. `words`: the size of a block.
  RecordedWork(const Form& form, std::size_t words);
  const Form& form() const noexcept { return form_; }
  bool busy() const noexcept override;
  /// A block that no replay reads; null: there is none.
  Block* free_block() noexcept;

 private:
  Form form_;
  std::vector<std::vector<const void*>> operands_;
  std::array<Block, kBlocks> blocks_;
};

/// The operations that are enqueued while recording, in memory that is reused.
class Capture {
 public:
  void begin() {
    operations_.clear();
    labels_.clear();
    used_ = 0;
  }
  /// Space for `count` addresses; empty if there is none.
  std::span<const void*> take_operands(std::size_t count, Operands& taken);
  void add(const Operation& operation, const WorkLabel& label) {
    operations_.push_back(operation);
    labels_.push_back(label);
  }
  std::span<const Operation> operations() const noexcept { return operations_; }
  const WorkLabel& label(std::size_t index) const noexcept { return labels_[index]; }
  /// Takes the values out of a copy of the operations. Valid until the next call.
  const Form& split(std::vector<std::uint64_t>& words);

 private:
  std::vector<Operation> operations_;
  std::vector<WorkLabel> labels_;
  std::vector<const void*> operands_;
  std::size_t used_ = 0;
  Form form_;
};

}  // namespace troupe::cpu
