#include "runtime/planning/detail/activation_bytes.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "runtime/memory/lifetimes.hpp"
#include "runtime/model/layer_kinds.hpp"
#include "runtime/model/reader_counts.hpp"

namespace troupe::detail {
namespace {

template <class... Kinds>
bool is_one_of(const Operation& operation) {
  return (std::holds_alternative<Kinds>(operation) || ...);
}

bool is_activation(const Operation& operation) { return is_one_of<Relu, Tanh, Sigmoid>(operation); }
/// Whether the backward pass reads the layer's input (reads_input_again) or output (reads_output_again).
bool reads_input_again(const Operation& operation) {
  return !is_one_of<Add, Concat, Dropout, Position, Embedding, Flatten, Relu, Tanh, Sigmoid, MaxPool, AveragePool,
                    GlobalAveragePool, Transpose>(operation);
}
bool reads_output_again(const Operation& operation) {
  return is_activation(operation) || std::holds_alternative<Attention>(operation);
}
/// Whether the gradient to its input overwrites the gradient to its output.
bool goes_back_in_place(const Operation& operation) {
  return is_one_of<Relu, Tanh, Sigmoid, Gelu, Dropout, BatchNorm, LayerNorm, Position, Flatten>(operation);
}

/// A step as a list of calls, one for each layer and pass, with the memory that each of them uses.
class StepLifetimes {
 public:
  StepLifetimes(const Graph& graph, std::uint32_t rows)
      : graph_(graph), row_bytes_(rows * size_bytes(graph.dtype())), value_of_(graph.fields().size()) {
    same_.resize(graph.fields().size() + graph.layers().size());
    for (std::uint32_t t = 0; t < same_.size(); ++t) same_[t] = t;
    gradient_of_.resize(same_.size());
    value_of_.resize(same_.size());
    behind_pool_.resize(graph.layers().size());
    for (std::uint32_t l = 0; l < graph.layers().size(); ++l) join(l);
  }

  std::uint64_t size_bytes_shared() {
    const auto count = static_cast<std::uint32_t>(graph_.layers().size());
    for (std::uint32_t l = 0; l < count; ++l) forward(l);
    for (std::uint32_t l = count; l-- > 0;) {
      if (!graph_.is_trained(graph_.output_tensor(l))) continue;
      for (const LayerRange& range : graph_.recomputed())
        if (l == range.last) compute_again(range);
      backward(l);
    }
    return share_by_lifetimes(blocks_).size_bytes;
  }

 private:
  using Block = std::size_t;

  /// Outputs in the memory of their layer's input, or computed together with the previous layer.
  void join(std::uint32_t layer) {
    const Operation& operation = graph_.layers()[layer].operation;
    const std::uint32_t input = graph_.inputs_of(layer).front(), fields = field_count();
    if (std::holds_alternative<MaxPool>(operation)) move_behind_pool(layer);
    if (std::holds_alternative<Flatten>(operation)) same_[graph_.output_tensor(layer)] = same_[input];
    if (!is_activation(operation) || input < fields || readers_[input] != 1) return;
    const Operation& before = graph_.layers()[input - fields].operation;
    const bool with_norm = std::holds_alternative<BatchNorm>(before) && std::holds_alternative<Relu>(operation);
    if (is_one_of<Dense, Conv2d>(before) || with_norm) same_[graph_.output_tensor(layer)] = same_[input];
  }
  /// The activation between a convolution and a max pool with a smaller output is applied to that output.
  void move_behind_pool(std::uint32_t pool) {
    const std::uint32_t input = graph_.inputs_of(pool).front(), fields = field_count();
    if (input < fields || same_[input] == input || readers_[input] != 1) return;
    const std::uint32_t activation = input - fields, before = same_[input] - fields;
    const bool shrinks = graph_.output_of(pool).count_elements() < graph_.shape_of(input).count_elements();
    if (!shrinks || !is_activation(graph_.layers()[activation].operation) ||
        !std::holds_alternative<Conv2d>(graph_.layers()[before].operation))
      return;
    behind_pool_[activation] = behind_pool_[pool] = true;
  }
  bool reads_its_output_again(std::uint32_t layer) const {
    const Operation& operation = graph_.layers()[layer].operation;
    if (behind_pool_[layer]) return std::holds_alternative<MaxPool>(operation);
    return reads_output_again(operation);
  }
  std::uint32_t field_count() const { return static_cast<std::uint32_t>(graph_.fields().size()); }
  Block take(std::uint32_t tensor) {
    blocks_.push_back({row_bytes_ * graph_.shape_of(tensor).count_elements(), {{call_, call_}}});
    return blocks_.size() - 1;
  }
  void use(const std::optional<Block>& block) {
    if (block) blocks_[*block].lifetimes.front().last = call_;
  }
  void forward(std::uint32_t layer) {
    ++call_;
    const std::uint32_t output = graph_.output_tensor(layer);
    for (const std::uint32_t input : graph_.inputs_of(layer)) use(value_of_[same_[input]]);
    const bool is_loss = kind_of(graph_.layers()[layer].operation).is_loss;
    if (is_loss) return contribute(graph_.inputs_of(layer).front());
    if (same_[output] == output) value_of_[output] = take(output);
  }
  /// The first contribution to the gradient of `tensor` takes memory; later ones are added to it.
  void contribute(std::uint32_t tensor) {
    std::optional<Block>& block = gradient_of_[same_[tensor]];
    if (tensor < field_count() || !graph_.is_trained(tensor)) return;
    if (!block) block = take(tensor);
    use(block);
  }
  void compute_again(const LayerRange& range) {
    for (std::uint32_t l = range.first; l <= range.last; ++l) {
      const std::uint32_t output = graph_.output_tensor(l);
      ++call_;
      for (const std::uint32_t input : graph_.inputs_of(l)) use(value_of_[same_[input]]);
      if (same_[output] == output && !is_read_outside(output, range)) value_of_[output] = take(output);
    }
  }
  bool is_read_outside(std::uint32_t tensor, const LayerRange& range) const {
    for (std::uint32_t l = 0; l < graph_.layers().size(); ++l) {
      if ((l >= range.first && l <= range.last) || std::holds_alternative<Flatten>(graph_.layers()[l].operation))
        continue;
      for (const std::uint32_t input : graph_.inputs_of(l))
        if (same_[input] == tensor) return true;
    }
    return false;
  }
  void backward(std::uint32_t layer) {
    const Operation& operation = graph_.layers()[layer].operation;
    if (kind_of(operation).is_loss) return;
    ++call_;
    const std::uint32_t output = graph_.output_tensor(layer);
    const auto& inputs = graph_.inputs_of(layer);
    std::optional<Block>& gradient = gradient_of_[same_[output]];
    use(gradient);
    if (reads_its_output_again(layer)) use(value_of_[same_[output]]);
    for (const std::uint32_t input : inputs)
      if (reads_input_again(operation)) use(value_of_[same_[input]]);
    if (same_[output] != output) return;  // its gradient is that of the previous layer
    if (goes_back_in_place(operation) && inputs.front() >= field_count() && !gradient_of_[same_[inputs.front()]]) {
      gradient_of_[same_[inputs.front()]] = gradient;
      return;
    }
    for (const std::uint32_t input : inputs) contribute(input);
  }

  const Graph& graph_;
  const std::vector<std::uint32_t> readers_ = reader_counts(graph_);  // by tensor
  const std::uint64_t row_bytes_;                                     // bytes of one element, over all rows
  std::vector<std::uint32_t> same_;
  std::vector<bool> behind_pool_;  // by layer: activations that are applied behind a pool, and these pools
  std::vector<std::optional<Block>> value_of_, gradient_of_;  // by tensor
  std::vector<BlockLifetimes> blocks_;
  std::uint32_t call_ = 0;
};

}  // namespace

std::uint64_t activation_bytes(const Graph& graph, std::uint32_t rows) {
  if (graph.layers().empty()) return 0;
  return StepLifetimes{graph, rows}.size_bytes_shared();
}

}  // namespace troupe::detail
