#include <algorithm>
#include <cmath>

#include "devices/cpu/loss.hpp"
#include "devices/cpu/stored_number.hpp"
#include "runtime/base/error.hpp"

// Losses with a target for each element that they read.
namespace troupe::cpu {
namespace {

/// Stores a gradient, or 0 where a ReLU before the loss has cut the number off.
template <class T>
void store_gradient(const LossShape& shape, float number, float gradient, T* to) noexcept {
  store(shape.after_relu && !(number > 0) ? 0.0F : gradient, to);
}

template <class T>
StepSums smooth_l1_rows(const LossShape& shape, float beta, const float* numbers, const T* targets, T* gradient) {
  const float part = shape.weight / static_cast<float>(shape.classes);
  double found = 0;
  for (std::uint64_t i = 0; i < std::uint64_t{shape.rows} * shape.classes; ++i) {
    const float d = numbers[i] - number_of(targets[i]), distance = std::abs(d);
    const bool near = distance < beta;
    found += static_cast<double>(near ? d * d / (2 * beta) : distance - beta / 2);
    if (gradient) store_gradient(shape, numbers[i], part * (near ? d / beta : d > 0 ? 1.0F : -1.0F), gradient + i);
  }
  StepSums sums;
  sums.loss = found * static_cast<double>(part);
  sums.samples = shape.rows;
  return sums;
}

/// How many classes of a row have a known target.
template <class T>
std::uint32_t count_known(const LossShape& shape, const T* targets, std::uint32_t row) {
  std::uint32_t known = 0;
  for (std::uint32_t k = 0; k < shape.classes; ++k) {
    const float target = number_of(targets[k]);
    TROUPE_CHECK(target <= 1, Code::corrupt, "row ", row, " of a batch has target ", target, " for class ", k,
                 "; targets are 0 to 1, or below 0 where none is known");
    known += target < 0 ? 0 : 1;
  }
  return known;
}

template <class T>
StepSums sigmoid_rows(const LossShape& shape, const float* logits, const T* targets, T* gradient) {
  StepSums sums;
  for (std::uint32_t row = 0; row < shape.rows; ++row, logits += shape.classes, targets += shape.classes) {
    T* const out = gradient ? gradient + std::size_t{row} * shape.classes : nullptr;
    if (out) std::fill_n(out, shape.classes, T{});
    const std::uint32_t known = count_known(shape, targets, row);
    if (known == 0) continue;
    const float part = shape.weight / static_cast<float>(known);
    double found = 0;
    bool right = true;
    for (std::uint32_t k = 0; k < shape.classes; ++k) {
      const float z = logits[k], target = number_of(targets[k]);
      if (target < 0) continue;
      const float small = std::exp(-std::abs(z));  // exp of a number that is not positive cannot overflow
      found += static_cast<double>(std::max(z, 0.0F) - z * target + std::log1p(small));
      right = right && (z > 0) == (target > 0.5F);
      if (out) store_gradient(shape, z, part * ((z > 0 ? 1.0F : small) / (1 + small) - target), out + k);
    }
    sums.loss += found * static_cast<double>(part);
    sums.correct += right ? 1 : 0;
    ++sums.samples;
  }
  return sums;
}

}  // namespace

StepSums smooth_l1(const LossShape& shape, float beta, const float* numbers, const void* targets, void* gradient) {
  if (shape.dtype == DType::f32)
    return smooth_l1_rows(shape, beta, numbers, static_cast<const float*>(targets), static_cast<float*>(gradient));
  return smooth_l1_rows(shape, beta, numbers, static_cast<const std::uint16_t*>(targets),
                        static_cast<std::uint16_t*>(gradient));
}

StepSums sigmoid_cross_entropy(const LossShape& shape, const float* logits, const void* targets, void* gradient) {
  if (shape.dtype == DType::f32)
    return sigmoid_rows(shape, logits, static_cast<const float*>(targets), static_cast<float*>(gradient));
  return sigmoid_rows(shape, logits, static_cast<const std::uint16_t*>(targets), static_cast<std::uint16_t*>(gradient));
}

}  // namespace troupe::cpu
