#include "apps/models/models.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/model/layer_list.hpp"
#include "runtime/model/layout.hpp"

namespace troupe {
namespace {

const Field& needed_field(const Settings& settings, const std::vector<Field>& fields, std::string_view name) {
  const Field* const found = find_field(fields, name);
  TROUPE_CHECK(found != nullptr, Code::invalid, "model ", settings.model.name, " reads a field \"", name,
               "\"; the data set has ", list_fields(fields));
  return *found;
}

/// ChainerMN's MNIST network for units = [1000, 1000]: dense layers l1, l2, ... with a ReLU after each but the last.
Graph build_mlp(const Settings& settings, const std::vector<Field>& fields) {
  Field image = needed_field(settings, fields, kImage);
  const Field label = needed_field(settings, fields, kLabel);
  image.dtype = settings.model.dtype;
  std::vector<Layer> layers;
  std::size_t number = 1;
  for (const std::uint32_t units : settings.model.units) {
    layers.push_back({text("l", number), Dense{units}});
    layers.push_back({text("relu", number), Relu{}});
    ++number;
  }
  layers.push_back({text("l", number), Dense{label.classes}});
  layers.push_back({"loss", SoftmaxCrossEntropy{}});
  return {settings.model.name, {std::move(image), label}, settings.model.dtype, std::move(layers)};
}

/// LeNet as MXNet's MNIST example has it: 20 and 50 filters of 5 x 5 with tanh and a pool of 2 x 2 each, then dense
/// layers of 500 units with tanh and of one for each class.
Graph build_lenet(const Settings& settings, const std::vector<Field>& fields) {
  Field image = needed_field(settings, fields, kImage);
  const Field label = needed_field(settings, fields, kLabel);
  image.dtype = settings.model.dtype;
  LayerList net;
  for (const std::uint32_t filters : {20, 50}) {
    net.add(Conv2d{.filters = filters, .kernel = {5, 5}});
    net.add(Tanh{});
    net.add(MaxPool{});
  }
  net.add(Dense{500});
  net.add(Tanh{});
  net.add(Dense{label.classes});
  return {settings.model.name, {std::move(image), label}, settings.model.dtype, net.finish()};
}

/// A decoder as GPT-2 has it (Radford et al. 2019, section 2.3): bytes and their places, blocks of attention and of two
/// dense layers, each behind a layer norm and added to what it read, a last norm, and logits for each place.
Graph build_gpt(const Settings& settings, const std::vector<Field>& fields) {
  const Field tokens = needed_field(settings, fields, kTokens), label = needed_field(settings, fields, kLabel);
  const auto& model = settings.model;
  TROUPE_CHECK(model.width % model.heads == 0, Code::invalid, "model.width = ", model.width,
               ": is no multiple of model.heads = ", model.heads, ", the parts that attention cuts it into");
  constexpr double kDeviation = 0.02;
  const auto dense = [](std::uint32_t units) { return Dense{.units = units, .flatten = false}; };
  LayerList net;
  net.add(Embedding{.vocabulary = tokens.classes, .width = model.width, .deviation = kDeviation});
  std::string stream = net.add(Position{.deviation = kDeviation});
  for (std::uint32_t block = 1; block <= model.depth; ++block) {
    const auto name = [&](const char* what) { return text("block_", block, '.', what); };
    net.add(LayerNorm{}, {stream}, name("attention_norm"));
    net.add(dense(3 * model.width), {}, name("query_key_value"));
    net.add(Attention{.heads = model.heads, .causal = true}, {}, name("attention"));
    const std::string read = net.add(dense(model.width), {}, name("projection"));
    stream = net.add(Add{}, {stream, read}, name("after_attention"));
    net.add(LayerNorm{}, {stream}, name("mlp_norm"));
    net.add(dense(4 * model.width), {}, name("expand"));
    net.add(Gelu{}, {}, name("gelu"));
    const std::string made = net.add(dense(model.width), {}, name("contract"));
    stream = net.add(Add{}, {stream, made}, name("out"));
  }
  net.add(LayerNorm{}, {stream}, "final_norm");
  net.add(dense(label.classes), {}, "logits");
  return {settings.model.name, {tokens, label}, settings.model.dtype, net.finish()};
}

/// The same graph, whose last loss has the settings' label smoothing.
Graph with_smoothing(const Settings& settings, const Graph& graph) {
  const double smoothing = settings.model.label_smoothing;
  std::vector<Layer> layers = graph.layers();
  auto* const loss = std::get_if<SoftmaxCrossEntropy>(&layers.back().operation);
  TROUPE_CHECK(loss != nullptr, Code::invalid, "model.label_smoothing = ", smoothing, ": the last layer, ",
               layers.back().name, ", is no softmax_cross_entropy; leave the key out");
  TROUPE_CHECK(loss->smoothing == 0 || loss->smoothing == smoothing, Code::invalid,
               "model.label_smoothing = ", smoothing, ", but layer ", layers.back().name,
               " has smoothing = ", loss->smoothing, "; leave one of them out");
  loss->smoothing = smoothing;
  return {graph.name(), graph.fields(), graph.dtype(), std::move(layers)};
}

/// The layers of app.toml, which read the data's first field, the labels, and what they name.
Graph build_layers(const Settings& settings, const std::vector<Field>& fields) {
  const std::vector<Layer>& layers = settings.model.layers;
  const auto is_read = [&](const Field& field) {
    return std::ranges::any_of(layers, [&](const Layer& layer) {
      if (layer.inputs.empty()) return &layer == &layers.front() ? &field == &fields.front() : field.name == kLabel;
      return std::ranges::find(layer.inputs, field.name) != layer.inputs.end();
    });
  };
  std::vector<Field> read;
  for (const Field& field : fields) {
    if (!is_read(field)) continue;
    read.push_back(field);
    if (field.dtype != DType::i32) read.back().dtype = settings.model.dtype;
  }
  return {"layers", std::move(read), settings.model.dtype, layers};
}

struct Registered {
  std::string_view name;
  Graph (*build)(const Settings&, const std::vector<Field>&);
};
constexpr std::array kModels{Registered{"mlp", build_mlp}, Registered{"lenet", build_lenet},
                             Registered{"gpt", build_gpt}};

Graph build_without_smoothing(const Settings& settings, const std::vector<Field>& fields) {
  if (!settings.model.layers.empty()) return build_layers(settings, fields);
  std::string names;
  for (const Registered& model : kModels) {
    if (model.name == settings.model.name) return model.build(settings, fields);
    names += text(names.empty() ? "" : ", ", model.name);
  }
  fail(Code::invalid, text("model.name = \"", settings.model.name, "\": there is no such model; there are: ", names));
}

}  // namespace

Graph build_model(const Settings& settings, const std::vector<Field>& fields) {
  Graph graph = build_without_smoothing(settings, fields);
  return settings.model.label_smoothing > 0 ? with_smoothing(settings, graph) : graph;
}

}  // namespace troupe
