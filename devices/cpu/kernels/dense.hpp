#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::cpu {

/// A part of output [rows, units] = input [rows, inputs] times weights [units, inputs] transposed, plus a bias: the
/// units from `first_unit`, a multiple of DenseKernels::kUnits, to `end_unit`.
struct DenseProduct {
  std::size_t rows = 0, inputs = 0, units = 0;
  std::size_t first_unit = 0, end_unit = 0;
  bool relu = false;  // after the bias
};

/// What is multiplied, f32 or bf16, and added, all of the whole product. No alignment is needed.
struct DenseOperands {
  const void* input;
  const void* weights;
  const float* bias;    // [units]; null: none
  float* sums;          // [rows, units]; the output where it is f32, which it may also be of bf16 operands
  std::uint16_t* bf16;  // [rows, units], the output in bf16; null: it is f32
  void* room;           // DenseKernels::room_bytes(), for this part alone
};

/// Dense layers whose vectors have neighbouring inputs in their lanes, as both operands are in memory: weights are not
/// rearranged, and no number of units wastes a part of a vector. The lanes are added at the end. The order of a sum
/// depends only on the number of inputs.
struct DenseKernels {
  const char* name;
  void (*forward)(const DenseProduct& of, const DenseOperands& on);

  static constexpr std::size_t kUnits = 4;  // that are computed together
  /// Inputs that are processed together.
  static constexpr std::size_t kBlockF32 = 1024, kBlockBf16 = 4096;
  static constexpr std::size_t room_bytes(std::size_t rows) noexcept {
    return rows * std::max(kBlockF32 * sizeof(float), kBlockBf16 * sizeof(std::uint16_t));
  }
};

#if defined(TROUPE_KERNELS_X86)
extern const DenseKernels kAvx2DenseKernels;
extern const DenseKernels kAvx512DenseKernels;
extern const DenseKernels kBf16DenseKernels;
#endif

/// All sets for f32, or for bf16, that this machine can execute and max_cpu_isa() allows, the narrowest first.
std::vector<const DenseKernels*> usable_dense_kernels(bool bf16);

}  // namespace troupe::cpu
