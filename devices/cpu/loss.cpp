#include "devices/cpu/loss.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "runtime/base/error.hpp"
#include "runtime/model/layout.hpp"

namespace troupe::cpu {
namespace {

float to_gradient(float value, float) noexcept { return value; }
std::uint16_t to_gradient(float value, std::uint16_t) noexcept { return to_bf16(value); }

/// e^(logit - largest) of a row, of some classes at a time.
struct Exponentials {
  const Kernels& kernels;
  const float* logits;
  std::uint32_t classes;
  float largest;

  /// Calls act(first class, exponentials, their sum).
  template <class Act>
  void for_parts(Act&& act) const {
    constexpr std::uint32_t kPart = 256;
    std::array<float, kPart> values;
    for (std::uint32_t first = 0; first < classes; first += kPart) {
      const std::uint32_t count = std::min(kPart, classes - first);
      std::copy_n(logits + first, count, values.begin());
      const float sum = kernels.exp_sum(values.data(), largest, count);
      act(first, std::span<const float>{values.data(), count}, sum);
    }
  }
  float sum() const {
    float sum = 0;
    for_parts([&](std::uint32_t, std::span<const float>, float part) { sum += part; });
    return sum;
  }
};

/// Writes the gradient to each logit: probability minus target, times the loss's weight; 0 where a ReLU cut the logit
/// off.
template <class T>
void write_gradient(const LossShape& shape, const Exponentials& of, float sum, std::uint32_t label, T* gradient) {
  const float scale = 1.0F / sum;
  const float shared = shape.smoothing / static_cast<float>(shape.classes), own = 1.0F - shape.smoothing;
  of.for_parts([&](std::uint32_t first, std::span<const float> exponentials, float) {
    for (std::uint32_t k = first; const float exponential : exponentials) {
      float value = exponential * scale - shared;
      if (k == label) value -= own;
      value *= shape.weight;
      if (shape.after_relu && !(of.logits[k] > 0)) value = 0;
      gradient[k++] = to_gradient(value, T{});
    }
  });
}

/// The sum of the logits, each multiplied by its class's part of the target.
double target_logit(const LossShape& shape, const float* logits, std::int32_t label) {
  const auto of_label = static_cast<double>(logits[label]);
  if (shape.smoothing == 0) return of_label;
  double sum = 0;
  for (std::uint32_t k = 0; k < shape.classes; ++k) sum += static_cast<double>(logits[k]);
  return of_label + static_cast<double>(shape.smoothing) * (sum / shape.classes - of_label);
}

template <class T>
StepSums rows(const Kernels& kernels, const LossShape& shape, const float* logits, const std::int32_t* labels,
              T* gradient) {
  StepSums sums;
  for (std::uint32_t row = 0; row < shape.rows; ++row, logits += shape.classes) {
    const std::int32_t label = labels[row];
    T* out = gradient ? gradient + std::size_t{row} * shape.classes : nullptr;
    if (label < 0 || label == shape.ignore) {
      if (out) std::fill_n(out, shape.classes, T{});
      continue;
    }
    TROUPE_CHECK(static_cast<std::uint32_t>(label) < shape.classes, Code::corrupt, "row ", row,
                 " of a batch has label ", label, ", the model has ", shape.classes,
                 " classes: check the data set's labels");
    const float* best = std::max_element(logits, logits + shape.classes);
    const Exponentials exponentials{kernels, logits, shape.classes, *best};
    const float sum = exponentials.sum();
    sums.loss += std::log(static_cast<double>(sum)) + (static_cast<double>(*best) - target_logit(shape, logits, label));
    sums.correct += best - logits == label ? 1 : 0;
    ++sums.samples;
    if (out) write_gradient(shape, exponentials, sum, static_cast<std::uint32_t>(label), out);
  }
  sums.loss *= static_cast<double>(shape.weight);
  return sums;
}

}  // namespace

StepSums softmax_cross_entropy(const Kernels& kernels, const LossShape& shape, const float* logits,
                               const std::int32_t* labels, void* gradient) {
  if (shape.dtype == DType::f32) return rows(kernels, shape, logits, labels, static_cast<float*>(gradient));
  return rows(kernels, shape, logits, labels, static_cast<std::uint16_t*>(gradient));
}

}  // namespace troupe::cpu
