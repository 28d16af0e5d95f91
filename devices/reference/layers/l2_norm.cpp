#include <cmath>

#include "devices/reference/layers/layers.hpp"

namespace troupe::reference {
namespace {

double norm_at(const L2Norm& norm, const double* x, std::size_t channels) {
  double squares = norm.epsilon;
  for (std::size_t c = 0; c < channels; ++c) squares += x[c] * x[c];
  return std::sqrt(squares);
}

}  // namespace

void forward(const L2Norm& norm, const LayerWork& work) {
  const std::size_t channels = work.output->shape.extents.back();
  const double* scale = work.parameters[0].values;
  for (std::size_t at = 0; at < work.output->values.size(); at += channels) {
    const double* x = &work.inputs[0]->values[at];
    const double length = norm_at(norm, x, channels);
    for (std::size_t c = 0; c < channels; ++c) work.output->values[at + c] = scale[c] * x[c] / length;
  }
}

// With n the norm and u = x / n: dx = (scale dy - u (u . (scale dy))) / n.
void backward(const L2Norm& norm, const LayerWork& work) {
  const std::size_t channels = work.output->shape.extents.back();
  const ParameterValues& scale = work.parameters[0];
  for (std::size_t at = 0; at < work.output->values.size(); at += channels) {
    const double *x = &work.inputs[0]->values[at], *dy = &work.output->gradients[at];
    double* dx = &work.inputs[0]->gradients[at];
    const double length = norm_at(norm, x, channels);
    double along = 0;
    for (std::size_t c = 0; c < channels; ++c) {
      scale.gradients[c] += dy[c] * x[c] / length;
      along += scale.values[c] * dy[c] * x[c] / length;
    }
    for (std::size_t c = 0; c < channels; ++c) dx[c] += (scale.values[c] * dy[c] - x[c] / length * along) / length;
  }
}

}  // namespace troupe::reference
