#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "devices/cuda/descriptors.hpp"

namespace troupe::cuda {

/// A batch norm in training, or its gradient, without addresses. Input, output and the gradients to them are [rows,
/// positions, channels] and have `type`; all others are f32, a number for each channel. The forward pass gives mean and
/// inverse (1 / sqrt(variance + epsilon)) to the gradient, and the mean and the variance over the count less one for
/// running statistics.
struct BatchNormForm {
  bool is_backward = false;
  Stored type = Stored::f32;
  std::uint32_t rows = 0, positions = 0, channels = 0;
  float epsilon = 0;
  std::uint32_t alignment = 0;  // the least of the addresses: a power of two, at most 256
  friend auto operator<=>(const BatchNormForm&, const BatchNormForm&) = default;
};

// Ids of its tensors. Of the forward pass: running statistics, which do not weigh anything, and the batch's.
inline constexpr std::int64_t kNormInput = 1, kNormOutput = 2, kNormScale = 3, kNormMean = 4, kNormInverse = 5,
                              kNormShift = 6, kNormRunningMean = 7, kNormRunningVariance = 8, kNormBatchMean = 9,
                              kNormBatchVariance = 10;
// Of the gradient: to the input, the scale and the shift. kNormOutput is the gradient to the output.
inline constexpr std::int64_t kNormToInput = 6, kNormToScale = 7, kNormToShift = 8;

/// One line that is another one for each form.
std::string text_of(const BatchNormForm& form);
/// Source: Ioffe, Szegedy 2015, section 3.
std::vector<dnn::Descriptor> operations_of(const BatchNormForm& form, Descriptors& made);
/// The numbers that a call gives along.
std::vector<DnnConstant> constants_of(const BatchNormForm& form);

}  // namespace troupe::cuda
