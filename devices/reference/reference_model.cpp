#include "devices/reference/reference_model.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/error.hpp"

namespace troupe::reference {
namespace {

using Row = std::vector<double>;

/// A Dense layer's parameters, and where their gradients go.
struct Weights {
  const double* weight;
  const double* bias;
  double* weight_gradient;
  double* bias_gradient;
};

Row dense(const Weights& at, const Row& x, std::size_t units) {
  Row y(units);
  for (std::size_t u = 0; u < units; ++u) {
    double sum = at.bias[u];
    for (std::size_t i = 0; i < x.size(); ++i) sum += at.weight[u * x.size() + i] * x[i];
    y[u] = sum;
  }
  return y;
}

/// Adds the layer's gradients and returns the one to its input.
Row dense_backward(const Weights& at, const Row& x, const Row& dy) {
  Row dx(x.size(), 0.0);
  for (std::size_t u = 0; u < dy.size(); ++u) {
    at.bias_gradient[u] += dy[u];
    for (std::size_t i = 0; i < x.size(); ++i) {
      at.weight_gradient[u * x.size() + i] += dy[u] * x[i];
      dx[i] += dy[u] * at.weight[u * x.size() + i];
    }
  }
  return dx;
}

/// Adds one row's loss to `result`; returns the gradient to the logits.
Row softmax_cross_entropy(const Row& logits, std::size_t label, Result& result) {
  const auto best = std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double z : logits) sum += std::exp(z - *best);
  result.loss += std::log(sum) + *best - logits[label];
  result.correct += static_cast<std::size_t>(best - logits.begin()) == label ? 1 : 0;
  ++result.samples;
  Row gradient(logits.size());
  for (std::size_t k = 0; k < logits.size(); ++k)
    gradient[k] = std::exp(logits[k] - *best) / sum - (k == label ? 1 : 0);
  return gradient;
}

}  // namespace

Result Model::run(std::span<const double> parameters, std::span<const double> inputs,
                  std::span<const std::int32_t> labels, bool with_gradients) const {
  Result result;
  std::vector<double> gradients(layout_.count_elements(), 0.0);
  std::vector<Weights> weights(graph_.layers().size());
  for (std::size_t p = 0; p < graph_.parameters().size(); p += 2) {
    const std::uint64_t weight = layout_.entries()[p].first, bias = layout_.entries()[p + 1].first;
    weights[graph_.parameters()[p].layer] = {&parameters[weight], &parameters[bias], &gradients[weight],
                                             &gradients[bias]};
  }
  const std::size_t features = graph_.input().count_elements();
  for (std::size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] < 0) continue;
    const auto label = static_cast<std::size_t>(labels[row]);
    TROUPE_CHECK(label < graph_.count_classes(), Code::corrupt, "row ", row, " of a batch has label ", label,
                 ", the model has ", graph_.count_classes(), " classes: check the data set's labels");
    std::vector<Row> x{{&inputs[row * features], &inputs[row * features] + features}};  // x[l]: what layer l takes in
    Row dy;
    for (std::size_t l = 0; l < graph_.layers().size(); ++l) {
      const Operation& operation = graph_.layers()[l].operation;
      if (std::holds_alternative<Dense>(operation)) {
        x.push_back(dense(weights[l], x[l], graph_.output_of(l).count_elements()));
      } else if (std::holds_alternative<Relu>(operation)) {
        x.push_back(x[l]);
        for (double& value : x.back()) value = std::max(value, 0.0);
      } else {
        dy = softmax_cross_entropy(x[l], label, result);
      }
    }
    for (std::size_t l = with_gradients ? graph_.layers().size() - 1 : 0; l-- > 0;) {
      const Operation& operation = graph_.layers()[l].operation;
      if (std::holds_alternative<Dense>(operation)) {
        dy = dense_backward(weights[l], x[l], dy);
      } else {
        for (std::size_t i = 0; i < dy.size(); ++i) dy[i] = x[l][i] > 0 ? dy[i] : 0.0;
      }
    }
  }
  if (with_gradients) result.gradients = std::move(gradients);
  return result;
}

}  // namespace troupe::reference
