#include "devices/reference/reference_model.hpp"

#include <algorithm>
#include <cmath>

#include "devices/reference/layers/layers.hpp"
#include "runtime/base/error.hpp"

namespace troupe::reference {
namespace {

/// A row's loss and whether its label has the largest logit; adds the gradient of the weighted loss to `to_logits`.
struct RowLoss {
  double loss;
  bool correct;
};
RowLoss softmax_cross_entropy(std::span<const double> logits, std::size_t label, double weight, double* to_logits) {
  const auto best = std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double z : logits) sum += std::exp(z - *best);
  for (std::size_t k = 0; k < logits.size(); ++k)
    to_logits[k] += weight * (std::exp(logits[k] - *best) / sum - (k == label ? 1 : 0));
  return {weight * (std::log(sum) + *best - logits[label]), static_cast<std::size_t>(best - logits.begin()) == label};
}

template <class... Calls>
struct Visit : Calls... {
  using Calls::operator()...;
};
template <class... Calls>
Visit(Calls...) -> Visit<Calls...>;

}  // namespace

/// A batch on its way: by tensor, the values and the gradients to them.
struct Model::Pass {
  const Graph& graph;
  std::span<const FieldValues> fields;
  std::uint32_t rows;
  std::vector<Tensor> tensors;
  std::vector<LayerWork> works;  // by layer; of a loss, nothing

  void prepare(const Layout& layout, const double* parameters, double* gradients) {
    for (std::uint32_t t = 0; t < fields.size() + graph.layers().size(); ++t) {
      const std::size_t count = rows * graph.shape_of(t).count_elements();
      tensors.push_back({graph.shape_of(t), std::vector<double>(count), std::vector<double>(count)});
    }
    for (std::size_t f = 0; f < fields.size(); ++f) {
      if (fields[f].labels.empty())
        tensors[f].values = fields[f].numbers;
      else
        tensors[f].values.assign(fields[f].labels.begin(), fields[f].labels.end());
    }
    for (std::size_t l = 0; l < graph.layers().size(); ++l) {
      LayerWork& work = works.emplace_back(LayerWork{rows, {}, &tensors[graph.output_tensor(l)], {}});
      for (const std::uint32_t input : graph.inputs_of(l)) work.inputs.push_back(&tensors[input]);
    }
    for (std::size_t p = 0; p < graph.parameters().size(); ++p) {
      const std::uint64_t first = layout.entries()[p].first;
      works[graph.parameters()[p].layer].parameters.push_back({parameters + first, gradients + first});
    }
  }

  void run_forward(std::size_t layer, Result& result) {
    const auto work = [&](const auto& operation) { forward(operation, works[layer]); };
    std::visit(Visit{work, [&](const SoftmaxCrossEntropy& loss) { add_loss(layer, loss, result); }},
               graph.layers()[layer].operation);
  }

  void run_backward(std::size_t layer) {
    const auto work = [&](const auto& operation) { backward(operation, works[layer]); };
    std::visit(Visit{work, [](const SoftmaxCrossEntropy&) {}}, graph.layers()[layer].operation);
  }

  void add_loss(std::size_t layer, const SoftmaxCrossEntropy& loss, Result& result) {
    const std::vector<std::int32_t>& labels = fields[graph.inputs_of(layer)[1]].labels;
    Tensor& logits = *works[layer].inputs[0];
    const std::size_t classes =
        logits.shape.count_elements() / graph.shape_of(graph.inputs_of(layer)[1]).count_elements();
    for (std::size_t row = 0; row < labels.size(); ++row) {
      const std::int32_t label = labels[row];
      if (label < 0) continue;
      TROUPE_CHECK(static_cast<std::size_t>(label) < classes, Code::corrupt, "row ", row, " of a batch has label ",
                   label, ", the model has ", classes, " classes: check the data set's labels");
      const RowLoss found =
          softmax_cross_entropy({&logits.values[row * classes], classes}, static_cast<std::size_t>(label), loss.weight,
                                &logits.gradients[row * classes]);
      result.loss += found.loss;
      if (layer + 1 != graph.layers().size()) continue;
      result.correct += found.correct ? 1 : 0;
      ++result.samples;
    }
  }
};

Result Model::run(std::span<const double> parameters, std::span<const FieldValues> fields, std::uint32_t rows,
                  bool with_gradients) const {
  Result result;
  std::vector<double> gradients(layout_.count_elements(), 0.0);
  Pass pass{graph_, fields, rows, {}, {}};
  pass.prepare(layout_, parameters.data(), gradients.data());
  const std::size_t count_layers = graph_.layers().size();
  for (std::size_t l = 0; l < count_layers; ++l) pass.run_forward(l, result);
  for (std::size_t l = with_gradients ? count_layers : 0; l-- > 0;) pass.run_backward(l);
  if (with_gradients) result.gradients = std::move(gradients);
  return result;
}

}  // namespace troupe::reference
