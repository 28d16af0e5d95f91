#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "apps/session/own_model.hpp"

namespace troupe::testing {

/// A model that costs little and has parameters for several stripes: each of six rows of weights wants to be the mean
/// of the images times a factor of its own, loss (w - f x)^2 / 2. `look` is called before each batch is trained, with
/// the weights; when it says so, the gradient of "b" has a NaN.
inline OwnModel pull_model(std::function<bool(const std::vector<SessionTensor>&)> look) {
  const auto pull = [](const BatchView& batch, const std::vector<SessionTensor>& tensors, bool train) {
    StepSums sums;
    for (const SessionTensor& tensor : tensors) {
      if (train) std::fill(tensor.gradients.begin(), tensor.gradients.end(), 0.0f);
    }
    const auto images = batch.values<float>(kImage);
    const auto labels = batch.values<std::int32_t>(kLabel);
    const std::size_t features = images.size() / batch.rows();
    for (std::uint32_t row = 0; row < batch.rows(); ++row) {
      if (labels[row] < 0) continue;
      ++sums.samples;
      sums.correct += labels[row] == 0 ? 1 : 0;
      const float* x = images.data() + row * features;
      for (const SessionTensor& tensor : tensors) {
        for (std::size_t i = 0; i < tensor.parameters.size(); ++i) {
          const float factor = 0.1f * static_cast<float>(1 + i / features);
          const float off = tensor.parameters[i] - factor * x[i % features];
          sums.loss += double{off} * off / 2;
          if (train) tensor.gradients[i] += off;
        }
      }
    }
    return sums;
  };
  OwnModel model{.name = "pull", .parameters = {{"w", {5, 784}}, {"b", {784}}}, .step = {}, .evaluate = {}};
  model.step = [pull, look = std::move(look)](const BatchView& batch, const std::vector<SessionTensor>& tensors) {
    const bool spoil = look(tensors);
    const StepSums sums = pull(batch, tensors, true);
    if (spoil) tensors.at(1).gradients[700] = std::numeric_limits<float>::quiet_NaN();
    return sums;
  };
  model.evaluate = [pull](const BatchView& batch, const std::vector<SessionTensor>& tensors) {
    return pull(batch, tensors, false);
  };
  return model;
}

}  // namespace troupe::testing
