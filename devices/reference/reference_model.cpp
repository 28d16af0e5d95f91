#include "devices/reference/reference_model.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.hpp"

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

/// A row's loss and whether its label has the largest logit; adds the gradient of the weighted loss to `to_logits`.
struct RowLoss {
  double loss;
  bool correct;
};
RowLoss softmax_cross_entropy(const Row& logits, std::size_t label, double weight, Row& to_logits) {
  const auto best = std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double z : logits) sum += std::exp(z - *best);
  for (std::size_t k = 0; k < logits.size(); ++k)
    to_logits[k] += weight * (std::exp(logits[k] - *best) / sum - (k == label ? 1 : 0));
  return {weight * (std::log(sum) + *best - logits[label]), static_cast<std::size_t>(best - logits.begin()) == label};
}

void add_to(Row& to, const Row& from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

}  // namespace

/// One row on its way: by tensor, the values and the gradients to them.
struct Model::Pass {
  const Graph& graph;
  std::span<const FieldValues> fields;
  std::size_t row;
  std::vector<Weights> weights;  // by layer
  std::vector<Row> values, gradients;

  const Row& input(std::size_t layer, std::size_t index = 0) const { return values[graph.inputs_of(layer)[index]]; }
  Row& input_gradient(std::size_t layer, std::size_t index = 0) { return gradients[graph.inputs_of(layer)[index]]; }

  void read_fields() {
    for (std::uint32_t f = 0; f < fields.size(); ++f) {
      const std::size_t count = graph.shape_of(f).count_elements();
      const auto& numbers = fields[f].numbers;
      if (numbers.empty()) continue;
      const auto first = numbers.begin() + static_cast<std::ptrdiff_t>(row * count);
      values[f].assign(first, first + static_cast<std::ptrdiff_t>(count));
    }
  }

  void forward(std::size_t layer, Result& result) {
    const Operation& operation = graph.layers()[layer].operation;
    Row& y = values[graph.output_tensor(layer)];
    if (std::holds_alternative<Dense>(operation)) {
      y = dense(weights[layer], input(layer), graph.output_of(layer).count_elements());
    } else if (std::holds_alternative<Relu>(operation)) {
      y = input(layer);
      for (double& value : y) value = std::max(value, 0.0);
    } else if (std::holds_alternative<Add>(operation)) {
      y = input(layer);
      for (std::size_t i = 1; i < graph.inputs_of(layer).size(); ++i) add_to(y, input(layer, i));
    } else {
      add_loss(layer, std::get<SoftmaxCrossEntropy>(operation), result);
    }
  }

  void add_loss(std::size_t layer, const SoftmaxCrossEntropy& loss, Result& result) {
    const std::int32_t label = fields[graph.inputs_of(layer)[1]].labels[row];
    if (label < 0) return;
    const Row& logits = input(layer);
    TROUPE_CHECK(static_cast<std::size_t>(label) < logits.size(), Code::corrupt, "row ", row, " of a batch has label ",
                 label, ", the model has ", logits.size(), " classes: check the data set's labels");
    const RowLoss found =
        softmax_cross_entropy(logits, static_cast<std::size_t>(label), loss.weight, input_gradient(layer));
    result.loss += found.loss;
    if (layer + 1 != graph.layers().size()) return;
    result.correct += found.correct ? 1 : 0;
    ++result.samples;
  }

  void backward(std::size_t layer) {
    const Operation& operation = graph.layers()[layer].operation;
    const Row& dy = gradients[graph.output_tensor(layer)];
    if (std::holds_alternative<Dense>(operation)) {
      add_to(input_gradient(layer), dense_backward(weights[layer], input(layer), dy));
    } else if (std::holds_alternative<Relu>(operation)) {
      for (std::size_t i = 0; i < dy.size(); ++i) input_gradient(layer)[i] += input(layer)[i] > 0 ? dy[i] : 0.0;
    } else if (std::holds_alternative<Add>(operation)) {
      for (std::size_t i = 0; i < graph.inputs_of(layer).size(); ++i) add_to(input_gradient(layer, i), dy);
    }
  }
};

Result Model::run(std::span<const double> parameters, std::span<const FieldValues> fields, std::uint32_t rows,
                  bool with_gradients) const {
  Result result;
  std::vector<double> gradients(layout_.count_elements(), 0.0);
  const std::size_t count_layers = graph_.layers().size();
  Pass pass{graph_, fields, 0, std::vector<Weights>(count_layers), {}, {}};
  for (std::size_t p = 0; p < graph_.parameters().size(); p += 2) {
    const std::uint64_t weight = layout_.entries()[p].first, bias = layout_.entries()[p + 1].first;
    pass.weights[graph_.parameters()[p].layer] = {&parameters[weight], &parameters[bias], &gradients[weight],
                                                  &gradients[bias]};
  }
  pass.values.resize(fields.size() + count_layers);
  for (; pass.row < rows; ++pass.row) {
    pass.read_fields();
    pass.gradients.clear();
    for (std::uint32_t t = 0; t < pass.values.size(); ++t)
      pass.gradients.emplace_back(graph_.shape_of(t).count_elements(), 0.0);
    for (std::size_t l = 0; l < count_layers; ++l) pass.forward(l, result);
    for (std::size_t l = with_gradients ? count_layers : 0; l-- > 0;) pass.backward(l);
  }
  if (with_gradients) result.gradients = std::move(gradients);
  return result;
}

}  // namespace troupe::reference
