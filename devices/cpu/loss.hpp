#pragma once

#include <cstdint>
#include <span>

#include "runtime/compute/stream.hpp"
#include "runtime/model/graph.hpp"

namespace troupe::cpu {

/// A softmax cross entropy over rows of logits.
struct LossShape {
  std::uint32_t rows = 0;
  std::uint32_t classes = 0;
  DType dtype = DType::f32;  // of the gradient
  bool after_relu = false;   // the logits went through a ReLU: no gradient where they are 0
  float weight = 1;          // of the loss and its gradient
};

/// Loss, correct and samples of `logits` [rows, classes] against `labels` [rows], in one pass. With `gradient` [rows,
/// classes] of the shape's dtype, also the gradient of the summed loss to the logits, zero in rows whose label is below
/// 0. Throws Error{corrupt} for a label that is no class.
StepSums softmax_cross_entropy(const LossShape& shape, const float* logits, const std::int32_t* labels, void* gradient);

}  // namespace troupe::cpu
