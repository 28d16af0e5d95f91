#include "runtime/compute/decoder.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <numbers>
#include <type_traits>
#include <variant>

#include "runtime/base/error.hpp"
#include "runtime/model/layer_kinds.hpp"

namespace troupe {
namespace {

/// The sum of x[i] y[i]. Sixteen partial sums in four vectors of 16 bytes, which every processor has: the order of the
/// additions is the same on all of them, and reading the weights from memory takes longer.
float dot(const float* x, const float* y, std::size_t count) noexcept {
  using Vector = float __attribute__((vector_size(16)));
  constexpr std::size_t kVector = 4, kTogether = 4;
  std::array<Vector, kTogether> sums{};
  std::size_t i = 0;
  for (; i + kVector * kTogether <= count; i += kVector * kTogether) {
    for (std::size_t v = 0; v < kTogether; ++v) {
      Vector a, b;
      std::memcpy(&a, x + i + kVector * v, sizeof a);
      std::memcpy(&b, y + i + kVector * v, sizeof b);
      sums[v] += a * b;
    }
  }
  const Vector all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  float sum = (all[0] + all[1]) + (all[2] + all[3]);
  for (; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

float gelu(float x) { return x * 0.5F * std::erfc(-x / std::numbers::sqrt2_v<float>); }
float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

/// A layer at one position.
struct Decoder::Work {
  const Decoder& decoder;
  std::size_t layer;
  std::uint32_t token;
  std::vector<float>& y;
  std::vector<float>& kept;

  const std::vector<float>& input(std::size_t i = 0) const {
    return decoder.values_[decoder.graph_.inputs_of(layer)[i]];
  }
  std::size_t count_inputs() const { return decoder.graph_.inputs_of(layer).size(); }
  std::span<const float> weights(std::size_t i) const { return decoder.weights(decoder.first_parameter_[layer] + i); }
  /// The part of [length, width] that belongs to the position.
  std::span<const float> row(std::size_t i, std::size_t at) const {
    return weights(i).subspan(at * y.size(), y.size());
  }
  template <class Function>
  void each(Function&& function) const {
    std::ranges::transform(input(), y.begin(), function);
  }
  template <class Join>
  void join(Join&& join) const {
    y = input();
    for (std::size_t i = 1; i < count_inputs(); ++i) std::ranges::transform(y, input(i), y.begin(), join);
  }

  void run(const Embedding&) const { std::ranges::copy(row(0, token), y.begin()); }
  void run(const Position&) const {
    std::ranges::transform(input(), row(0, decoder.position_), y.begin(), std::plus{});
  }
  void run(const Relu&) const {
    each([](float x) { return std::max(x, 0.0F); });
  }
  void run(const Tanh&) const {
    each([](float x) { return std::tanh(x); });
  }
  void run(const Sigmoid&) const { each(sigmoid); }
  void run(const Gelu&) const { each(gelu); }
  void run(const Dropout&) const { y = input(); }
  void run(const Add&) const { join(std::plus{}); }
  void run(const Multiply&) const { join(std::multiplies{}); }

  void run(const Dense& dense) const {
    const std::vector<float>& x = input();
    const float* const w = weights(0).data();
    for (std::size_t unit = 0; unit < y.size(); ++unit)
      y[unit] = dot(w + unit * x.size(), x.data(), x.size()) + (dense.bias ? weights(1)[unit] : 0);
  }

  void run(const LayerNorm& norm) const {
    const std::vector<float>& x = input();
    const auto count = static_cast<double>(x.size());
    double mean = 0, variance = 0;
    for (const float one : x) mean += one / count;
    for (const float one : x) variance += (one - mean) * (one - mean) / count;
    const double scale = 1 / std::sqrt(variance + norm.epsilon);
    for (std::size_t i = 0; i < x.size(); ++i)
      y[i] = static_cast<float>((x[i] - mean) * scale) * weights(0)[i] + weights(1)[i];
  }

  void run(const Attention& attention) const {
    const std::size_t width = y.size(), part = width / attention.heads;
    const float* const query = input().data();
    std::copy_n(query + width, 2 * width, &kept[decoder.position_ * 2 * width]);
    std::vector<float> factors(decoder.position_ + 1);
    for (std::size_t first = 0; first < width; first += part) {
      const float* const keys = kept.data() + first;
      for (std::size_t at = 0; at < factors.size(); ++at)
        factors[at] = dot(query + first, keys + at * 2 * width, part) / std::sqrt(static_cast<float>(part));
      const float largest = *std::ranges::max_element(factors);
      float sum = 0;
      for (float& factor : factors) sum += factor = std::exp(factor - largest);
      std::fill_n(y.begin() + static_cast<std::ptrdiff_t>(first), part, 0.0F);
      for (std::size_t at = 0; at < factors.size(); ++at)
        for (std::size_t i = 0; i < part; ++i) y[first + i] += factors[at] / sum * keys[at * 2 * width + width + i];
    }
  }
};

/// Whether a layer is computed above, and no position of its output depends on later ones of its inputs.
bool Decoder::can_decode(const Operation& operation) {
  return std::visit(
      []<class Kind>(const Kind& kind) {
        if constexpr (std::is_same_v<Kind, Dense>) return !kind.flatten;
        if constexpr (std::is_same_v<Kind, Attention>) return kind.causal;
        return requires(const Work& work) { work.run(kind); };
      },
      operation);
}

std::string Decoder::refusal(const Graph& graph) {
  if (graph.layers().empty()) return "the arithmetic of the model is not known";
  std::uint32_t tokens = ~0U;  // the field
  for (std::size_t l = 0; l < graph.layers().size(); ++l) {
    const Layer& layer = graph.layers()[l];
    const std::vector<std::uint32_t>& inputs = graph.inputs_of(l);
    const std::string where = text("layer ", layer.name, " (", text_of(layer.operation), ")");
    if (std::holds_alternative<Embedding>(layer.operation)) {
      if (graph.fields()[inputs[0]].shape.extents.size() != 1) return where + " does not read a sequence of tokens";
      if (tokens != ~0U && tokens != inputs[0]) return where + " reads a second field of tokens";
      tokens = inputs[0];
    } else if (std::ranges::any_of(inputs, [&](std::uint32_t t) { return t < graph.fields().size(); }) &&
               !kind_of(layer.operation).is_loss) {
      return where + " reads numbers of a sample, not tokens";
    }
    const bool last = l + 1 == graph.layers().size();
    if (!last && !can_decode(layer.operation)) return where + " does not compute one position after the other";
    if (!last) continue;
    if (!std::holds_alternative<SoftmaxCrossEntropy>(layer.operation)) return where + " is not softmax_cross_entropy";
    if (tokens == ~0U || graph.shape_of(inputs[1]) != graph.shape_of(tokens))
      return where + " does not have a label for each token";
  }
  return {};
}

Decoder::Decoder(const Graph& graph, const Layout& layout, std::span<const float> parameters)
    : graph_(graph), layout_(layout), parameters_(parameters) {
  const std::string refused = refusal(graph);
  TROUPE_CHECK(refused.empty(), Code::unsupported, "graph ", graph.name(), " cannot be decoded: ", refused);
  TROUPE_CHECK(parameters.size() == layout.count_elements(), Code::invalid, "graph ", graph.name(), " has ",
               layout.count_elements(), " parameters, ", parameters.size(), " were given");
  length_ = static_cast<std::uint32_t>(graph.shape_of(graph.inputs_of(graph.layers().size() - 1)[1]).count_elements());
  first_parameter_.assign(graph.layers().size(), 0);
  for (std::size_t p = graph.parameters().size(); p-- > 0;) first_parameter_[graph.parameters()[p].layer] = p;
  kept_.resize(graph.layers().size());
  values_.resize(graph.fields().size() + graph.layers().size());
  for (std::size_t l = 0; l + 1 < graph.layers().size(); ++l) {
    std::vector<float>& values = values_[graph.output_tensor(l)];
    values.resize(graph.shape_of(graph.output_tensor(l)).extents.back());
    if (std::holds_alternative<Attention>(graph.layers()[l].operation)) kept_[l].resize(length_ * 2 * values.size());
    if (const auto* embedding = std::get_if<Embedding>(&graph.layers()[l].operation))
      vocabulary_ = std::min(vocabulary_, embedding->vocabulary);
  }
}

std::span<const float> Decoder::weights(std::size_t parameter) const {
  const Layout::Entry& entry = layout_.entries()[parameter];
  return parameters_.subspan(entry.first, entry.count);
}

std::span<const float> Decoder::add(std::uint32_t token) {
  TROUPE_CHECK(position_ < length_, Code::invalid, "all ", length_, " positions of a decoder have tokens; restart it");
  TROUPE_CHECK(token < vocabulary_, Code::invalid, "token ", token, " is not in the vocabulary of ", vocabulary_);
  const std::size_t loss = graph_.layers().size() - 1;
  for (std::size_t l = 0; l < loss; ++l) {
    const Work work{*this, l, token, values_[graph_.output_tensor(l)], kept_[l]};
    std::visit(
        [&](const auto& kind) {
          if constexpr (requires { work.run(kind); }) work.run(kind);
        },
        graph_.layers()[l].operation);
  }
  ++position_;
  return values_[graph_.inputs_of(loss)[0]];
}

}  // namespace troupe
