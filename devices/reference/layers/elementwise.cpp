#include <cmath>
#include <numbers>

#include "devices/reference/layers/layers.hpp"

namespace troupe::reference {
namespace {

/// y = value(x), element by element.
template <class Value>
void for_elements(const LayerWork& work, Value&& value) {
  const auto& x = work.inputs[0]->values;
  for (std::size_t i = 0; i < x.size(); ++i) work.output->values[i] = value(x[i]);
}

/// Adds dy * slope(x, y) to the gradient.
template <class Slope>
void for_slopes(const LayerWork& work, Slope&& slope) {
  Tensor &in = *work.inputs[0], &out = *work.output;
  for (std::size_t i = 0; i < in.values.size(); ++i)
    in.gradients[i] += out.gradients[i] * slope(in.values[i], out.values[i]);
}

double standard_normal_below(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double standard_normal_density(double x) {
  return std::exp(-0.5 * x * x) * 0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2;
}

}  // namespace

void forward(const Flatten&, const LayerWork& work) {
  for_elements(work, [](double x) { return x; });
}
void backward(const Flatten&, const LayerWork& work) {
  for_slopes(work, [](double, double) { return 1.0; });
}

void forward(const Relu&, const LayerWork& work) {
  for_elements(work, [](double x) { return x > 0 ? x : 0; });
}
void backward(const Relu&, const LayerWork& work) {
  for_slopes(work, [](double x, double) { return x > 0 ? 1.0 : 0.0; });
}

void forward(const Tanh&, const LayerWork& work) {
  for_elements(work, [](double x) { return std::tanh(x); });
}
void backward(const Tanh&, const LayerWork& work) {
  for_slopes(work, [](double, double y) { return 1 - y * y; });
}

void forward(const Sigmoid&, const LayerWork& work) {
  for_elements(work, [](double x) { return 1 / (1 + std::exp(-x)); });
}
void backward(const Sigmoid&, const LayerWork& work) {
  for_slopes(work, [](double, double y) { return y * (1 - y); });
}

void forward(const Gelu&, const LayerWork& work) {
  for_elements(work, [](double x) { return x * standard_normal_below(x); });
}
void backward(const Gelu&, const LayerWork& work) {
  for_slopes(work, [](double x, double) { return standard_normal_below(x) + x * standard_normal_density(x); });
}

void forward(const Add&, const LayerWork& work) {
  work.output->values = work.inputs[0]->values;
  for (std::size_t n = 1; n < work.inputs.size(); ++n)
    for (std::size_t i = 0; i < work.output->values.size(); ++i) work.output->values[i] += work.inputs[n]->values[i];
}
void backward(const Add&, const LayerWork& work) {
  for (Tensor* input : work.inputs)
    for (std::size_t i = 0; i < input->gradients.size(); ++i) input->gradients[i] += work.output->gradients[i];
}

void forward(const Multiply&, const LayerWork& work) {
  work.output->values = work.inputs[0]->values;
  for (std::size_t n = 1; n < work.inputs.size(); ++n)
    for (std::size_t i = 0; i < work.output->values.size(); ++i) work.output->values[i] *= work.inputs[n]->values[i];
}
void backward(const Multiply&, const LayerWork& work) {
  for (std::size_t n = 0; n < work.inputs.size(); ++n) {
    for (std::size_t i = 0; i < work.output->gradients.size(); ++i) {
      double others = work.output->gradients[i];
      for (std::size_t m = 0; m < work.inputs.size(); ++m) others *= m == n ? 1 : work.inputs[m]->values[i];
      work.inputs[n]->gradients[i] += others;
    }
  }
}

namespace {

/// Calls `with(input, its element, the output's element)` for all elements that are concatenated.
template <class With>
void for_parts(const LayerWork& work, With&& with) {
  const std::size_t width = work.output->shape.extents.back();
  std::size_t first = 0;
  for (Tensor* input : work.inputs) {
    const std::size_t own = input->shape.extents.back();
    for (std::size_t i = 0; i < input->values.size(); ++i) with(*input, i, i / own * width + first + i % own);
    first += own;
  }
}

}  // namespace

void forward(const Concat&, const LayerWork& work) {
  for_parts(work,
            [&](const Tensor& input, std::size_t i, std::size_t at) { work.output->values[at] = input.values[i]; });
}
void backward(const Concat&, const LayerWork& work) {
  for_parts(work,
            [&](Tensor& input, std::size_t i, std::size_t at) { input.gradients[i] += work.output->gradients[at]; });
}

namespace {

/// Calls `with(the output's element, the input's)` for all elements.
template <class With>
void for_moved(const Transpose& transpose, const LayerWork& work, With&& with) {
  const auto &in = work.inputs[0]->shape.extents, &out = work.output->shape.extents;
  for (std::size_t i = 0; i < work.output->values.size(); ++i) {
    std::vector<std::size_t> index(in.size());  // of the input
    std::size_t left = i;
    for (std::size_t k = out.size(); k-- > 0; left /= out[k]) index[transpose.order[k]] = left % out[k];
    std::size_t at = left;  // the row
    for (std::size_t k = 0; k < in.size(); ++k) at = at * in[k] + index[k];
    with(i, at);
  }
}

}  // namespace

void forward(const Transpose& transpose, const LayerWork& work) {
  for_moved(transpose, work,
            [&](std::size_t to, std::size_t from) { work.output->values[to] = work.inputs[0]->values[from]; });
}
void backward(const Transpose& transpose, const LayerWork& work) {
  for_moved(transpose, work,
            [&](std::size_t to, std::size_t from) { work.inputs[0]->gradients[from] += work.output->gradients[to]; });
}

}  // namespace troupe::reference
