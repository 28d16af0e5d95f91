#pragma once

#include <cstdint>
#include <span>

#include "devices/cpu/kernels/kernels.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/model/graph.hpp"

namespace troupe::cpu {

/// A loss over rows of logits or of other numbers.
struct LossShape {
  std::uint32_t rows = 0;
  std::uint32_t classes = 0;
  DType dtype = DType::f32;  // of the gradient
  bool after_relu = false;   // the logits are outputs of a ReLU: no gradient where they are 0
  float weight = 1;          // multiplies the loss and its gradient
  float smoothing = 0;       // of a softmax cross entropy, as the fields below
  std::int32_t ignore = -1;
};

/// Loss, correct and samples of `logits` [rows, classes] against `labels` [rows], in one pass. With `gradient` [rows,
/// classes] of the shape's dtype, also the gradient of the summed loss to the logits; it is zero in rows whose label is
/// below 0 or shape.ignore. Throws Error{corrupt} for a label that is not a class.
StepSums softmax_cross_entropy(const Kernels& kernels, const LossShape& shape, const float* logits,
                               const std::int32_t* labels, void* gradient);

/// The same for numbers and `targets` [rows, classes], of the shape's dtype. No row counts as correct.
StepSums smooth_l1(const LossShape& shape, float beta, const float* numbers, const void* targets, void* gradient);
/// The same; classes whose target is below 0 do not count, nor do rows without any other class. Throws Error{corrupt}
/// for a target above 1.
StepSums sigmoid_cross_entropy(const LossShape& shape, const float* logits, const void* targets, void* gradient);

}  // namespace troupe::cpu
