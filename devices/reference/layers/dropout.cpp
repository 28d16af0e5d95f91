#include "runtime/model/dropout.hpp"

#include "devices/reference/layers/layers.hpp"

namespace troupe::reference {
namespace {

/// to[i] = add(to[i], factor * from[i]); the factor of element i is 1 / (1 - rate), 0, or in an evaluation 1.
template <class Add>
void for_kept(const Dropout& dropout, const LayerWork& work, std::vector<double>& to, const std::vector<double>& from,
              Add&& add) {
  if (work.rows == 0) return;
  const std::size_t width = from.size() / work.rows;
  for (std::uint32_t row = 0; row < work.rows; ++row) {
    for (std::size_t i = 0; i < width; ++i) {
      double factor = 1;
      if (!work.sample_keys.empty()) {
        const DroppedElements dropped{joined_key(&work.sample_keys[2 * row]), work.layer, dropout.rate};
        factor = dropped.drops(i) ? 0 : 1 / (1 - dropout.rate);
      }
      add(to[row * width + i], from[row * width + i] * factor);
    }
  }
}

}  // namespace

void forward(const Dropout& dropout, const LayerWork& work) {
  for_kept(dropout, work, work.output->values, work.inputs[0]->values, [](double& to, double value) { to = value; });
}
void backward(const Dropout& dropout, const LayerWork& work) {
  for_kept(dropout, work, work.inputs[0]->gradients, work.output->gradients,
           [](double& to, double value) { to += value; });
}

}  // namespace troupe::reference
