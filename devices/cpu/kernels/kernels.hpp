#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/cpu_isa.hpp"
#include "runtime/compute/rules/rule.hpp"
#include "runtime/compute/undo_copy.hpp"

namespace troupe::cpu {

/// The operands of an update kernel: `count` elements each.
struct UpdatePart {
  const RuleStep* rule;
  float scale;         // 1 / samples
  const float* first;  // the summed gradients are first[i], or first[i] + second[i] when `second` is given
  const float* second;
  float* p;
  float* s0;  // may be null where the rule keeps no such state
  float* s1;
  float* average;       // may be null where the rule keeps none
  std::uint16_t* half;  // the copy in bf16, as troupe::to_bf16; may be null
  std::size_t count;
};

/// (x - mean) * factor + shift, column by column; with `relu`, 0 where that is below 0.
struct ColumnScale {
  const float* means;
  const float* factors;
  const float* shifts;
  bool relu;
};

/// factor * (gradient - sum - (x - mean) * product), column by column.
struct GradientCenter {
  const float* means;
  const float* factors;
  const float* sums;
  const float* products;
};

/// The loops over flat arrays, compiled once for each instruction set from one source. All sets give the same bits.
/// Arrays need no alignment.
struct Kernels {
  const char* name;
  /// One update of a part of a stripe, which also makes the copy of `undo`: divisions and roots determine the time, so
  /// the copy, like the bf16 image, costs almost nothing here.
  void (*update)(const UpdatePart& part, const UndoCopy& undo);
  /// For a rule with tensor norms: lanes[i mod 16] += the square of weight i, and of the direction in which `part.rule`
  /// moves it, as troupe::add_piece_squares does. Changes nothing in the part.
  void (*measure)(const UpdatePart& part, double* weight_lanes, double* update_lanes);
  /// to[i] = a[i] + b[i]; `to` may be `a` or `b`.
  void (*add)(float* to, const float* a, const float* b, std::size_t count);
  /// The same on bf16, rounded as troupe::to_bf16.
  void (*add_bf16)(std::uint16_t* to, const std::uint16_t* a, const std::uint16_t* b, std::size_t count);
  /// to[i] += part[i], 0 where activation[i] is not above 0.
  void (*add_masked_f32)(float* to, const float* part, const float* activation, std::size_t count);
  void (*add_masked_bf16)(std::uint16_t* to, const std::uint16_t* part, const std::uint16_t* activation,
                          std::size_t count);
  /// to[i * step + e] += from[i * elements + e] for `count` groups of `elements` elements; the bf16 sums are rounded
  /// likewise.
  void (*add_apart_f32)(float* to, std::size_t step, const float* from, std::size_t elements, std::size_t count);
  void (*add_apart_bf16)(std::uint16_t* to, std::size_t step, const std::uint16_t* from, std::size_t elements,
                         std::size_t count);
  /// to [width] = the mean of the rows of `from` [rows, width]; in bf16 it is rounded likewise.
  void (*average_f32)(float* to, const float* from, std::size_t rows, std::size_t width);
  void (*average_bf16)(std::uint16_t* to, const std::uint16_t* from, std::size_t rows, std::size_t width);
  /// The gradient of a mean over rows: each row of `to` [rows, width] = from [width] / rows.
  void (*spread_average_f32)(float* to, const float* from, std::size_t rows, std::size_t width);
  void (*spread_average_bf16)(std::uint16_t* to, const std::uint16_t* from, std::size_t rows, std::size_t width);
  /// to[i] = factor * (anchor[i] - from[i]); `to` may be one of the others.
  void (*weighted_delta)(float* to, const float* anchor, const float* from, float factor, std::size_t count);
  /// lanes[i mod 16] += values[i]^2, in ascending order (runtime/compute/rules/square_sums.hpp).
  void (*add_squares)(double* lanes, const float* values, std::size_t count);
  /// to[i] = from[i], 0 where that is below 0.
  void (*relu_f32)(float* to, const float* from, std::size_t count);
  void (*relu_bf16)(std::uint16_t* to, const std::uint16_t* from, std::size_t count);
  /// gradient[i] = 0 where activation[i] is not above 0.
  void (*mask_f32)(float* gradient, const float* activation, std::size_t count);
  /// The same on bf16.
  void (*mask_bf16)(std::uint16_t* gradient, const std::uint16_t* activation, std::size_t count);
  /// gradient[i] *= the slope of tanh where its value is output[i]: 1 - output[i]^2.
  void (*tanh_slope_f32)(float* gradient, const float* output, std::size_t count);
  void (*tanh_slope_bf16)(std::uint16_t* gradient, const std::uint16_t* output, std::size_t count);
  /// The same of the logistic function: output[i] * (1 - output[i]).
  void (*sigmoid_slope_f32)(float* gradient, const float* output, std::size_t count);
  void (*sigmoid_slope_bf16)(std::uint16_t* gradient, const std::uint16_t* output, std::size_t count);
  /// to[i] = from[i], bf16 to f32: exact.
  void (*widen)(float* to, const std::uint16_t* from, std::size_t count);
  /// to[i] = from[i], f32 to bf16, rounded as troupe::to_bf16.
  void (*round)(std::uint16_t* to, const float* from, std::size_t count);
  /// to[i] = from[i] + residual[i], likewise; residual[i] = the rounding error of that, 0 where it is not finite.
  void (*round_with_residual)(std::uint16_t* to, const float* from, float* residual, std::size_t count);
  /// values[i] = e^(values[i] - shift), accurate to a few units in the last place, nearly 0 below e^-87; returns their
  /// sum.
  float (*exp_sum)(float* values, float shift, std::size_t count);
  /// to[i] += from[i].
  void (*add_widened)(float* to, const std::uint16_t* from, std::size_t count);
  // The kernels below work on matrices [rows, width]; arrays with a value for each column are [width].
  /// sums += the rows.
  void (*column_sums)(float* sums, const float* values, std::size_t rows, std::size_t width);
  /// sums += the squares of the rows minus `means`.
  void (*column_squares)(float* sums, const float* values, const float* means, std::size_t rows, std::size_t width);
  /// sums += the rows of `gradient`; products += these times the rows of `values` minus `means`.
  void (*column_products)(float* sums, float* products, const float* gradient, const float* values, const float* means,
                          std::size_t rows, std::size_t width);
  void (*scale_columns)(float* to, const float* from, const ColumnScale& by, std::size_t rows, std::size_t width);
  void (*center_gradient)(float* gradient, const float* values, const GradientCenter& by, std::size_t rows,
                          std::size_t width);
  /// to[i] = from[i] times the distribution function of N(0, 1) at from[i].
  void (*gelu_f32)(float* to, const float* from, std::size_t count);
  void (*gelu_bf16)(std::uint16_t* to, const std::uint16_t* from, std::size_t count);
  /// The same; and slope[i] = the slope of that at from[i].
  void (*gelu_with_slope_f32)(float* to, float* slope, const float* from, std::size_t count);
  void (*gelu_with_slope_bf16)(std::uint16_t* to, std::uint16_t* slope, const std::uint16_t* from, std::size_t count);
  /// to[i] *= by[i].
  void (*multiply_f32)(float* to, const float* by, std::size_t count);
  void (*multiply_bf16)(std::uint16_t* to, const std::uint16_t* by, std::size_t count);
};

extern const Kernels kBaselineKernels;
#if defined(TROUPE_KERNELS_X86)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

/// All sets that this machine can execute and that max_cpu_isa() allows, the narrowest first.
std::vector<const Kernels*> usable_kernels();
/// The widest set of usable_kernels().
const Kernels& best_kernels();

}  // namespace troupe::cpu
