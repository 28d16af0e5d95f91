#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/random.hpp"
#include "runtime/model/layer_kinds.hpp"
#include "runtime/model/layer_list.hpp"

namespace troupe::contracts {

/// Draws from a key.
class Draws {
 public:
  explicit Draws(std::uint64_t key) : key_(key) {}
  /// `low` to `high`.
  std::uint32_t number(std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(random_below(key_, ++drawn_, high - low + 1));
  }
  Size2 size(std::uint32_t low, std::uint32_t high) { return {number(low, high), number(low, high)}; }
  bool one_in(std::uint32_t count) { return number(1, count) == 1; }

 private:
  std::uint64_t key_;
  std::uint64_t drawn_ = 0;
};

/// An operation of a kind that reads one image, with attributes that fit an image of at least 5 x 5 x 2n channels.
inline Operation drawn_operation(const LayerKind& kind, Draws& draws) {
  const auto window = [&](auto pool) -> Operation {
    pool.kernel = draws.size(1, 3);
    if (draws.one_in(2)) pool.stride = draws.size(1, 3);
    pool.padding = {draws.number(0, pool.kernel.height - 1), draws.number(0, pool.kernel.width - 1)};
    return pool;
  };
  Operation made = kind.made;
  if (std::holds_alternative<MaxPool>(made)) return window(MaxPool{});
  if (std::holds_alternative<AveragePool>(made)) return window(AveragePool{});
  if (auto* norm = std::get_if<L2Norm>(&made)) norm->scale = draws.number(1, 8) * 0.5;
  if (auto* dropout = std::get_if<Dropout>(&made)) dropout->rate = 0.1 * draws.number(0, 9);
  if (auto* dense = std::get_if<Dense>(&made)) {
    dense->units = draws.number(1, 40);
    dense->flatten = !draws.one_in(3);
    dense->bias = !draws.one_in(3);
  }
  if (auto* conv = std::get_if<Conv2d>(&made)) {
    conv->groups = draws.number(1, 2);
    conv->filters = conv->groups * draws.number(1, 20);
    conv->kernel = draws.size(1, 3);
    conv->stride = draws.size(1, 2);
    conv->padding = draws.size(0, 2);
    conv->dilation = draws.size(1, 2);
    conv->bias = !draws.one_in(3);
  }
  if (auto* transpose = std::get_if<Transpose>(&made)) {
    transpose->order = {0, 1, 2};
    std::swap(transpose->order[2], transpose->order[draws.number(0, 2)]);
    std::swap(transpose->order[1], transpose->order[draws.number(0, 1)]);
  }
  return made;
}

inline Shape drawn_image(Draws& draws, std::uint32_t largest_side) {
  return {{draws.number(5, largest_side), draws.number(5, largest_side), draws.number(1, 4)}};
}

inline constexpr std::uint32_t kLayerClasses = 4;

/// Whether layers of `kind` read tokens, or a sequence instead of an image.
inline bool is_of_sequences(const LayerKind& kind) {
  return kind.reads_tokens || std::holds_alternative<Position>(kind.made) ||
         std::holds_alternative<Attention>(kind.made) || std::holds_alternative<LayerNorm>(kind.made);
}

/// A layer of `kind` reads tokens, or what a dense layer makes of numbers at each place; another one follows. One graph
/// in two has a label for each place, with a smoothed target, and one in three drops elements.
inline Graph sequence_graph_with(const LayerKind& kind, std::uint64_t key, DType dtype, std::uint32_t longest) {
  Draws draws{key};
  LayerList net;
  const std::uint32_t length = draws.number(2, longest);
  Field input{std::string{kImage}, {{length, draws.number(1, 6)}}, batch_type(dtype)};
  if (kind.reads_tokens) input = {"tokens", {{length}}, DType::i32, draws.number(1, 30)};
  Operation made = kind.made;
  std::uint32_t width = draws.number(8, 20);
  if (auto* embedding = std::get_if<Embedding>(&made)) *embedding = {input.classes + draws.number(0, 2), width};
  if (auto* attention = std::get_if<Attention>(&made)) {
    *attention = {.heads = draws.number(1, 4), .causal = draws.one_in(2)};
    width = 3 * attention->heads * draws.number(1, 9);
  }
  if (!kind.reads_tokens) net.add(Dense{width, false});
  net.add(made);
  if (draws.one_in(2)) net.add(Tanh{});
  Field label{std::string{kLabel}, {}, DType::i32};
  const bool one_for_each = draws.one_in(2);
  if (one_for_each) label.shape = {{length}};
  if (key % 3 == 2) net.add(Dropout{.rate = 0.25});
  net.add(Dense{kLayerClasses, !one_for_each});
  if (one_for_each) {
    SoftmaxCrossEntropy loss{.smoothing = draws.number(0, 2) * 0.15};
    if (draws.one_in(2)) loss.ignore = static_cast<std::int32_t>(draws.number(0, kLayerClasses - 1));
    net.add(loss);
  }
  return {std::string{kind.name}, {std::move(input), std::move(label)}, dtype, net.finish()};
}

/// A classifier in which a layer of `kind`, not a loss, reads what a convolution puts out, and a dense layer reads it.
inline Graph graph_with(const LayerKind& kind, std::uint64_t key, DType dtype, std::uint32_t largest_side = 11) {
  if (is_of_sequences(kind)) return sequence_graph_with(kind, key, dtype, largest_side * largest_side);
  Draws draws{key};
  LayerList net;
  const Shape image = drawn_image(draws, largest_side);
  const std::uint32_t filters = 2 * draws.number(1, 10);
  std::vector<std::string> inputs;
  // Sometimes it reads the image itself, to which no gradient is computed.
  const bool reads_image = key % 4 == 3 && kind.least_inputs == 1 && !std::holds_alternative<Conv2d>(kind.made);
  if (reads_image) inputs.emplace_back(kImage);
  const std::string first =
      reads_image ? std::string{} : net.add(Conv2d{.filters = filters, .kernel = {3, 3}, .padding = {1, 1}});
  while (inputs.size() + 1 < kind.least_inputs) inputs.push_back(net.add(Conv2d{.filters = filters}, {first}));
  if (kind.least_inputs > 1) inputs.push_back(first);
  net.add(drawn_operation(kind, draws), inputs);
  if (draws.one_in(2)) net.add(Tanh{});
  net.add(Dense{kLayerClasses});
  return {std::string{kind.name}, image, dtype, net.finish()};
}

/// A network of convolutions, pools, activations and sums, of random size and order.
inline Graph random_network(std::uint64_t key, DType dtype) {
  Draws draws{sub_key(key, 77)};
  LayerList net;
  const Shape image = drawn_image(draws, 15);
  net.add(Conv2d{.filters = draws.number(1, 33), .kernel = draws.size(1, 3), .padding = {1, 1}});
  const auto activation = [&] {
    // In 16 bits a ReLU of few units may cut one off on one side alone, which is much of a gradient.
    const Operation any[]{Tanh{}, Sigmoid{}, Gelu{}, Relu{}};
    if (!draws.one_in(5)) net.add(any[draws.number(0, has_16_bits(dtype) ? 2 : 3)]);
  };
  activation();
  for (std::uint32_t block = draws.number(0, 2); block > 0; --block) {
    const std::string before = net.last();
    const std::uint32_t filters = draws.number(1, 40);
    const std::string wide = net.add(Conv2d{.filters = filters}, {before});
    switch (draws.number(0, 4)) {
      case 0:
        activation();
        net.add(Conv2d{.filters = filters, .kernel = {3, 3}, .padding = {1, 1}});
        net.add(Add{}, {wide, net.last()});
        break;
      case 1: net.add(MaxPool{.kernel = {3, 3}, .stride = {1, 2}, .padding = {1, 1}}); break;
      case 2: net.add(AveragePool{.kernel = {2, 3}, .stride = {1, 1}, .padding = {1, 1}}); break;
      case 3:
        net.add(BatchNorm{});
        if (dtype == DType::f32) net.add(Relu{});
        break;
      default: net.add(Conv2d{.filters = 2 * filters, .kernel = {3, 1}, .padding = {1, 0}, .groups = filters}); break;
    }
    activation();
  }
  switch (draws.number(0, 2)) {
    case 0: net.add(GlobalAveragePool{}); break;
    case 1: net.add(Flatten{}); break;
    default: break;
  }
  if (draws.one_in(2)) {
    net.add(Dense{draws.number(3, 50)});
    activation();
  }
  net.add(Dense{kLayerClasses});
  return {"network", image, dtype, net.finish()};
}

/// An image of one or two channels, a convolution without padding, an activation, and a max pool: what devices have
/// kernels of their own for, or do in another order.
inline Graph network_of_few_channels(std::uint64_t key, DType dtype) {
  Draws draws{sub_key(key, 81)};
  LayerList net;
  const Shape image{{draws.number(9, 20), draws.number(9, 20), draws.one_in(4) ? 2U : 1U}};
  net.add(Conv2d{.filters = draws.number(1, 33), .kernel = draws.size(1, 5), .bias = !draws.one_in(3)});
  const Operation any[]{Tanh{}, Sigmoid{}, Relu{}};
  if (!draws.one_in(4)) net.add(any[draws.number(0, has_16_bits(dtype) ? 1 : 2)]);
  const MaxPool pools[]{
      {}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}, {.kernel = {3, 2}, .stride = {1, 1}}};
  if (!draws.one_in(4)) net.add(pools[draws.number(0, 2)]);
  if (draws.one_in(2)) net.add(Conv2d{.filters = draws.number(1, 20), .kernel = draws.size(1, 2)});
  net.add(Dense{kLayerClasses});
  return {"few channels", image, dtype, net.finish()};
}

/// Convolutions of 3 x 3 with 32 or more channels in whole blocks of 16, which devices have algorithms and layouts of
/// their own for, between layers that work on each element or channel, and others for which the order of channels in
/// memory matters.
inline Graph network_of_many_channels(std::uint64_t key) {
  Draws draws{sub_key(key, 79)};
  LayerList net;
  const Shape image{{draws.number(12, 18), draws.number(12, 18), draws.number(1, 2) * 16}};
  const auto convolution = [&](std::uint32_t filters) {
    return Conv2d{.filters = filters, .kernel = {3, 3}, .padding = {1, 1}, .bias = !draws.one_in(3)};
  };
  std::uint32_t filters = draws.number(2, 3) * 16;
  net.add(convolution(filters));
  for (std::uint32_t block = 0; block < 2; ++block) {
    const Operation any[]{Relu{}, Tanh{}, Sigmoid{}, Gelu{}, BatchNorm{}};
    net.add(any[draws.number(0, 4)]);
    const std::string before = net.last();
    const std::string made = net.add(convolution(filters));
    switch (draws.number(0, 8)) {
      case 0: net.add(Add{}, {made, before}); break;
      case 8:
        net.add(Transpose{{2, 0, 1}});
        net.add(Tanh{});
        net.add(Transpose{{1, 2, 0}});
        break;
      case 1: net.add(Multiply{}, {before, made}); break;
      case 2: net.add(MaxPool{.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}}); break;
      case 3: net.add(AveragePool{.kernel = {2, 2}, .stride = {1, 1}}); break;
      case 4: net.add(Concat{}, {made, before}); break;
      case 5: net.add(L2Norm{}); break;
      case 6: net.add(Dropout{.rate = 0.25}); break;
      default: net.add(Conv2d{.filters = filters, .kernel = {1, 1}}); break;
    }
  }
  switch (draws.number(0, 4)) {
    case 0: net.add(GlobalAveragePool{}); break;
    case 1: net.add(Flatten{}); break;
    case 2:
      net.add(Flatten{});
      net.add(Tanh{});
      break;
    case 3: net.add(Dense{8, false}); break;
    default: break;
  }
  net.add(Dense{kLayerClasses});
  return {"many_channels", image, DType::f32, net.finish()};
}

inline constexpr std::string_view kTarget = "target";

/// A network whose last loss is of `kind`, with drawn attributes, and reads what a dense layer puts out, or a sigmoid
/// or a ReLU after it. A loss that has them reads number targets, which drawn_target() gives, and another reads the
/// labels.
inline Graph graph_with_loss(const LayerKind& kind, std::uint64_t key, DType dtype) {
  Draws draws{sub_key(key, 78)};
  LayerList net;
  const Shape image = drawn_image(draws, 7);
  const std::string first = net.add(Dense{draws.number(2, 20)});
  const std::string wide = net.add(Tanh{}, {first});
  std::vector<Field> fields{{std::string{kImage}, image, batch_type(dtype)}, {std::string{kLabel}, {}, DType::i32}};
  Operation loss = kind.made;
  const double weight = draws.one_in(2) ? 1 : 0.5;
  if (auto* softmax = std::get_if<SoftmaxCrossEntropy>(&loss)) {
    softmax->weight = weight;
    softmax->smoothing = draws.number(0, 2) * 0.15;
    if (draws.one_in(2)) softmax->ignore = static_cast<std::int32_t>(draws.number(0, kLayerClasses - 1));
  }
  if (auto* smooth = std::get_if<SmoothL1>(&loss)) *smooth = {weight, draws.number(1, 4) * 0.25};
  if (auto* sigmoid = std::get_if<SigmoidCrossEntropy>(&loss)) sigmoid->weight = weight;
  if (!kind.has_number_targets) {
    net.add(Dense{kLayerClasses});
    net.add(loss);
    return {std::string{kind.name}, std::move(fields), dtype, net.finish()};
  }
  net.add(Dense{kLayerClasses}, {wide});
  net.add(SoftmaxCrossEntropy{0.5}, {net.last(), std::string{kLabel}});
  const std::uint32_t numbers = draws.number(1, 40);
  fields.push_back({std::string{kTarget}, {{numbers}}, batch_type(dtype)});
  net.add(Dense{numbers}, {wide});
  switch (draws.number(0, 3)) {
    case 0:
      if (dtype == DType::f32) net.add(Relu{});
      break;
    case 1: net.add(Sigmoid{}); break;
    default: break;
  }
  net.add(loss, {net.last(), std::string{kTarget}});
  return {std::string{kind.name}, std::move(fields), dtype, net.finish()};
}

/// Below 0 where none is known.
inline double drawn_target(std::uint64_t key, std::uint64_t i) {
  constexpr double kTargets[]{-1, 0, 0.25, 1};
  return kTargets[random_below(key, i, 4)];
}

/// All kinds that are losses, or all that are none.
inline std::vector<const LayerKind*> kinds_of(bool losses) {
  std::vector<const LayerKind*> kinds;
  for (const LayerKind& kind : layer_kinds())
    if (kind.is_loss == losses) kinds.push_back(&kind);
  return kinds;
}
inline std::vector<const LayerKind*> kinds_of_layers() { return kinds_of(false); }
inline std::vector<const LayerKind*> kinds_of_losses() { return kinds_of(true); }

}  // namespace troupe::contracts
