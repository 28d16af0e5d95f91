#include "devices/reference/layers/layers.hpp"

namespace troupe::reference {
namespace {

/// The number of rows of the product, and the input elements of each.
struct Matrix {
  std::size_t rows, in;
};
Matrix matrix_of(const Dense& dense, const LayerWork& work) {
  const Shape& shape = work.inputs[0]->shape;
  const std::size_t all = shape.count_elements(), in = dense.flatten ? all : shape.extents.back();
  return {work.rows * (all / in), in};
}

}  // namespace

void forward(const Dense& dense, const LayerWork& work) {
  const auto [rows, in] = matrix_of(dense, work);
  const double* weight = work.parameters[0].values;
  const double* bias = dense.bias ? work.parameters[1].values : nullptr;
  for (std::size_t row = 0; row < rows; ++row) {
    const double* x = &work.inputs[0]->values[row * in];
    for (std::size_t u = 0; u < dense.units; ++u) {
      double sum = bias == nullptr ? 0 : bias[u];
      for (std::size_t i = 0; i < in; ++i) sum += weight[u * in + i] * x[i];
      work.output->values[row * dense.units + u] = sum;
    }
  }
}

void backward(const Dense& dense, const LayerWork& work) {
  const auto [rows, in] = matrix_of(dense, work);
  const ParameterValues& weight = work.parameters[0];
  for (std::size_t row = 0; row < rows; ++row) {
    const double* x = &work.inputs[0]->values[row * in];
    double* dx = &work.inputs[0]->gradients[row * in];
    for (std::size_t u = 0; u < dense.units; ++u) {
      const double dy = work.output->gradients[row * dense.units + u];
      if (dense.bias) work.parameters[1].gradients[u] += dy;
      for (std::size_t i = 0; i < in; ++i) {
        weight.gradients[u * in + i] += dy * x[i];
        dx[i] += dy * weight.values[u * in + i];
      }
    }
  }
}

}  // namespace troupe::reference
