#include "devices/reference/reference_model.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "devices/reference/layers/layers.hpp"
#include "runtime/base/error.hpp"
#include "runtime/model/dropout.hpp"

namespace troupe::reference {
namespace {

/// A row's loss, and whether its label has the largest logit; adds the gradient of the weighted loss to `to_logits`.
struct RowLoss {
  double loss;
  bool correct;
};
RowLoss softmax_cross_entropy(const SoftmaxCrossEntropy& loss, std::span<const double> logits, std::size_t label,
                              double* to_logits) {
  const auto best = std::max_element(logits.begin(), logits.end());
  double sum = 0, found = 0;
  for (const double z : logits) sum += std::exp(z - *best);
  for (std::size_t k = 0; k < logits.size(); ++k) {
    const double target = loss.smoothing / static_cast<double>(logits.size()) + (k == label ? 1 - loss.smoothing : 0);
    found += target * (std::log(sum) + *best - logits[k]);
    to_logits[k] += loss.weight * (std::exp(logits[k] - *best) / sum - target);
  }
  return {loss.weight * found, static_cast<std::size_t>(best - logits.begin()) == label};
}

double smooth_l1(const SmoothL1& loss, std::span<const double> x, const double* targets, double* to_x) {
  const double part = loss.weight / static_cast<double>(x.size());
  double found = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d = x[i] - targets[i];
    const bool near = std::abs(d) < loss.beta;
    found += part * (near ? d * d / (2 * loss.beta) : std::abs(d) - loss.beta / 2);
    to_x[i] += part * (near ? d / loss.beta : d > 0 ? 1 : -1);
  }
  return found;
}

/// Empty if no class counts.
std::optional<RowLoss> sigmoid_cross_entropy(const SigmoidCrossEntropy& loss, std::span<const double> logits,
                                             const double* targets, double* to_logits, std::uint32_t row) {
  double count = 0;
  for (std::size_t k = 0; k < logits.size(); ++k) {
    TROUPE_CHECK(targets[k] <= 1, Code::corrupt, "row ", row, " of a batch has target ", targets[k], " for class ", k,
                 "; targets are 0 to 1, or below 0 where none is known");
    count += targets[k] < 0 ? 0 : 1;
  }
  if (count == 0) return std::nullopt;
  RowLoss found{0, true};
  for (std::size_t k = 0; k < logits.size(); ++k) {
    const double z = logits[k], t = targets[k];
    if (t < 0) continue;
    found.loss += loss.weight / count * (std::max(z, 0.0) - z * t + std::log1p(std::exp(-std::abs(z))));
    found.correct = found.correct && (z > 0) == (t > 0.5);
    to_logits[k] += loss.weight / count * (1 / (1 + std::exp(-z)) - t);
  }
  return found;
}

template <class... Calls>
struct Visit : Calls... {
  using Calls::operator()...;
};
template <class... Calls>
Visit(Calls...) -> Visit<Calls...>;

}  // namespace

/// One batch: by tensor, the values and the gradients.
struct Model::Pass {
  const Graph& graph;
  std::span<const FieldValues> fields;
  std::uint32_t rows;
  std::vector<Tensor> tensors;
  std::vector<LayerWork> works;  // by layer; unused for a loss

  /// `result` lives as long as the pass.
  void prepare(const Layout& layout, const double* parameters, double* gradients, bool training, const Result& result) {
    for (std::uint32_t t = 0; t < fields.size() + graph.layers().size(); ++t) {
      const std::size_t count = rows * graph.shape_of(t).count_elements();
      tensors.push_back({graph.shape_of(t), std::vector<double>(count), std::vector<double>(count)});
    }
    std::span<const std::int32_t> keys;
    for (std::size_t f = 0; f < fields.size(); ++f) {
      if (graph.fields()[f].name == kSampleKey)
        keys = fields[f].labels;
      else if (fields[f].labels.empty())
        tensors[f].values = fields[f].numbers;
      else
        tensors[f].values.assign(fields[f].labels.begin(), fields[f].labels.end());
    }
    for (std::size_t l = 0; l < graph.layers().size(); ++l) {
      LayerWork& work =
          works.emplace_back(LayerWork{rows, training, &result.samples, {}, &tensors[graph.output_tensor(l)], {}});
      for (const std::uint32_t input : graph.inputs_of(l)) work.inputs.push_back(&tensors[input]);
      work.layer = static_cast<std::uint32_t>(l);
      work.sample_keys = keys;
    }
    for (std::size_t p = 0; p < graph.parameters().size(); ++p) {
      const std::uint64_t first = layout.entries()[p].first;
      works[graph.parameters()[p].layer].parameters.push_back({parameters + first, gradients + first});
    }
  }

  void run_forward(std::size_t layer, Result& result) {
    const auto work = [&](const auto& operation) { forward(operation, works[layer]); };
    std::visit(Visit{work, [&](const SoftmaxCrossEntropy& loss) { add_loss(layer, loss, result); },
                     [&](const SmoothL1& loss) { add_loss(layer, loss, result); },
                     [&](const SigmoidCrossEntropy& loss) { add_loss(layer, loss, result); }},
               graph.layers()[layer].operation);
  }

  void run_backward(std::size_t layer) {
    const auto work = [&](const auto& operation) { backward(operation, works[layer]); };
    std::visit(
        Visit{work, [](const SoftmaxCrossEntropy&) {}, [](const SmoothL1&) {}, [](const SigmoidCrossEntropy&) {}},
        graph.layers()[layer].operation);
  }

  void add_loss(std::size_t layer, const SoftmaxCrossEntropy& loss, Result& result) {
    const std::vector<std::int32_t>& labels = fields[graph.inputs_of(layer)[1]].labels;
    Tensor& logits = *works[layer].inputs[0];
    const std::size_t classes =
        logits.shape.count_elements() / graph.shape_of(graph.inputs_of(layer)[1]).count_elements();
    for (std::size_t row = 0; row < labels.size(); ++row) {
      const std::int32_t label = labels[row];
      if (label < 0 || label == loss.ignore) continue;
      TROUPE_CHECK(static_cast<std::size_t>(label) < classes, Code::corrupt, "row ", row, " of a batch has label ",
                   label, ", the model has ", classes, " classes: check the data set's labels");
      const RowLoss found = softmax_cross_entropy(loss, {&logits.values[row * classes], classes},
                                                  static_cast<std::size_t>(label), &logits.gradients[row * classes]);
      note(layer, found, result);
    }
  }

  void add_loss(std::size_t layer, const SmoothL1& loss, Result& result) {
    for_rows(layer, [&](std::uint32_t, std::span<const double> x, const double* targets, double* to_x) {
      note(layer, {smooth_l1(loss, x, targets, to_x), false}, result);
    });
  }

  void add_loss(std::size_t layer, const SigmoidCrossEntropy& loss, Result& result) {
    for_rows(layer, [&](std::uint32_t row, std::span<const double> logits, const double* targets, double* to_logits) {
      if (const auto found = sigmoid_cross_entropy(loss, logits, targets, to_logits, row)) note(layer, *found, result);
    });
  }

  /// Adds a row that counts to the result.
  void note(std::size_t layer, const RowLoss& found, Result& result) const {
    result.loss += found.loss;
    if (layer + 1 != graph.layers().size()) return;
    result.correct += found.correct ? 1 : 0;
    ++result.samples;
  }

  /// act(row, numbers, targets, gradient) for a loss whose targets are numbers.
  template <class Act>
  void for_rows(std::size_t layer, Act&& act) {
    const std::vector<double>& targets = fields[graph.inputs_of(layer)[1]].numbers;
    Tensor& read = *works[layer].inputs[0];
    const std::size_t width = read.shape.count_elements();
    for (std::uint32_t row = 0; row < rows; ++row) {
      act(row, std::span<const double>{&read.values[row * width], width}, &targets[row * width],
          &read.gradients[row * width]);
    }
  }
};

Result Model::run(std::span<const double> parameters, std::span<const FieldValues> fields, std::uint32_t rows,
                  bool with_gradients) const {
  Result result;
  std::vector<double> gradients(layout_.count_elements(), 0.0);
  Pass pass{graph_, fields, rows, {}, {}};
  pass.prepare(layout_, parameters.data(), gradients.data(), with_gradients, result);
  const std::size_t count_layers = graph_.layers().size();
  for (std::size_t l = 0; l < count_layers; ++l) pass.run_forward(l, result);
  for (std::size_t l = with_gradients ? count_layers : 0; l-- > 0;) pass.run_backward(l);
  if (with_gradients) result.gradients = std::move(gradients);
  return result;
}

}  // namespace troupe::reference
