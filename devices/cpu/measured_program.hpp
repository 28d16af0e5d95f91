#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "devices/cpu/step_program.hpp"

namespace troupe::cpu {

/// Zeros from a multiple of 64 bytes on, as an arena's memory.
template <class T>
class AlignedZeros {
 public:
  explicit AlignedZeros(std::uint64_t count)
      : bytes_(count * sizeof(T) + kAlign),
        first_(reinterpret_cast<T*>((reinterpret_cast<std::uintptr_t>(bytes_.data()) + kAlign - 1) / kAlign * kAlign)),
        count_(count) {}
  AlignedZeros(const AlignedZeros&) = delete;
  AlignedZeros& operator=(const AlignedZeros&) = delete;
  T* data() const noexcept { return first_; }
  std::span<T> all() const noexcept { return {first_, count_}; }

 private:
  static constexpr std::uintptr_t kAlign = 64;
  std::vector<std::byte> bytes_;
  T* first_;
  std::uint64_t count_;
};

/// What a graph's programs compute with where only their time matters: initial parameters, and drawn samples.
class DrawnBatch {
 public:
  DrawnBatch(const Graph& graph, std::uint32_t rows);
  const Layout& layout() const noexcept { return layout_; }
  const BatchLayout& batch() const noexcept { return batch_; }
  const std::byte* bytes() const noexcept { return bytes_.data(); }
  ProgramMemory memory() const noexcept;

 private:
  void fill(const BatchLayout::Entry& entry);

  const Layout layout_;
  const BatchLayout batch_;
  const AlignedZeros<float> parameters_, gradients_;
  const AlignedZeros<std::uint16_t> bf16_;
  const AlignedZeros<std::byte> bytes_;
};

/// A graph's program, run outside of a stream. `batch` outlives it.
class MeasuredProgram {
 public:
  MeasuredProgram(const Graph& graph, const DrawnBatch& batch, const ProgramOptions& options);
  /// Forward and backward, with the losses. Whether it came to its end: between its pieces it is given up once it takes
  /// longer than `limit_s`.
  bool step(double limit_s);
  const std::vector<StepProgram::LayerPass>& parts() const { return program_.parts(); }
  void run(const StepProgram::LayerPass& part) const { program_.run(part); }

 private:
  const DrawnBatch& batch_;
  StepSums sums_;
  StepProgram program_;
};

}  // namespace troupe::cpu
