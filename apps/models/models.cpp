#include "apps/models/models.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/model/layer_kinds.hpp"
#include "runtime/model/layer_list.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/model/recomputation.hpp"
#include "runtime/onnx/onnx_import.hpp"

namespace troupe {
namespace {

const Field& needed_field(const Settings& settings, const std::vector<Field>& fields, std::string_view name) {
  const Field* const found = find_field(fields, name);
  TROUPE_CHECK(found != nullptr, Code::invalid, "model ", settings.model.name, " reads a field \"", name,
               "\"; the data set has ", list_fields(fields));
  return *found;
}

/// ChainerMN's MNIST network if units = [1000, 1000]: dense layers l1, l2, ... with a ReLU after each except the last.
Graph build_mlp(const Settings& settings, const std::vector<Field>& fields) {
  Field image = needed_field(settings, fields, kImage);
  const Field label = needed_field(settings, fields, kLabel);
  image.dtype = batch_type(settings.model.dtype);
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

/// LeNet as in MXNet's MNIST example: convolutions with 20 and with 50 filters of 5 x 5, each with tanh and a pool of 2
/// x 2, then dense layers with 500 units and tanh, and with one unit for each class.
Graph build_lenet(const Settings& settings, const std::vector<Field>& fields) {
  Field image = needed_field(settings, fields, kImage);
  const Field label = needed_field(settings, fields, kLabel);
  image.dtype = batch_type(settings.model.dtype);
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

/// CNTK's ConvNet for images of 32 x 32: two pairs of convolutions of 3 x 3 with a ReLU each and an overlapping pool
/// after each pair, then dense layers of 256 and 128 units with a ReLU and dropout, and one with a unit for each class.
Graph build_convnet(const Settings& settings, const std::vector<Field>& fields) {
  Field image = needed_field(settings, fields, kImage);
  const Field label = needed_field(settings, fields, kLabel);
  image.dtype = batch_type(settings.model.dtype);
  LayerList net;
  for (int pair = 0; pair < 2; ++pair) {
    for (int i = 0; i < 2; ++i) {
      net.add(Conv2d{.filters = 64, .kernel = {3, 3}, .padding = {1, 1}});
      net.add(Relu{});
    }
    net.add(MaxPool{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
  }
  for (const std::uint32_t units : {256, 128}) {
    net.add(Dense{units});
    net.add(Relu{});
    net.add(Dropout{.rate = 0.5});
  }
  net.add(Dense{label.classes});
  return {settings.model.name, {std::move(image), label}, settings.model.dtype, net.finish()};
}

/// A residual network of He et al. 2016 (Deep residual learning for image recognition) with `model.depth` layers: for
/// images of 224 x 224 (their table 1), or of 32 x 32 (their section 4.2).
struct ResNetShape {
  bool large_images = true;           // begins with a 7 x 7 convolution with stride 2 and a pool
  bool bottleneck = false;            // blocks of 1 x 1, 3 x 3, 1 x 1; the last one has four times the filters
  std::uint32_t filters = 64;         // in the first stage; each further stage has twice as many
  std::vector<std::uint32_t> blocks;  // number in each stage
};

ResNetShape resnet_shape(std::uint32_t depth) {
  switch (depth) {
    case 18: return {.blocks = {2, 2, 2, 2}};
    case 34: return {.blocks = {3, 4, 6, 3}};
    case 50: return {.bottleneck = true, .blocks = {3, 4, 6, 3}};
    case 101: return {.bottleneck = true, .blocks = {3, 4, 23, 3}};
    case 152: return {.bottleneck = true, .blocks = {3, 8, 36, 3}};
    default: break;
  }
  TROUPE_CHECK(
      depth >= 8 && depth % 6 == 2, Code::invalid, "model.depth = ", depth,
      ": a ResNet has 18, 34, 50, 101 or 152 layers, or, for images of 32 x 32, 6 n + 2 (20, 32, 44, 56, 110)");
  const std::uint32_t each = (depth - 2) / 6;
  return {.large_images = false, .filters = 16, .blocks = {each, each, each}};
}

/// The first block of a stage, except the first stage, halves the image in its 3 x 3 convolution. If a block changes
/// the shape of its input, it has a parallel convolution of 1 x 1 (their option B).
Graph build_resnet(const Settings& settings, const std::vector<Field>& fields) {
  Field image = needed_field(settings, fields, kImage);
  const Field label = needed_field(settings, fields, kLabel);
  image.dtype = batch_type(settings.model.dtype);
  const ResNetShape shape = resnet_shape(settings.model.depth);
  LayerList net;
  const auto convolve = [&](std::uint32_t filters, std::uint32_t kernel, std::uint32_t stride,
                            std::vector<std::string> inputs, const std::string& name) {
    const std::uint32_t padding = kernel / 2;
    net.add(Conv2d{.filters = filters,
                   .kernel = {kernel, kernel},
                   .stride = {stride, stride},
                   .padding = {padding, padding},
                   .bias = false},
            std::move(inputs), name);
    return net.add(BatchNorm{}, {}, text(name, "_norm"));
  };
  convolve(shape.filters, shape.large_images ? 7 : 3, shape.large_images ? 2 : 1, {}, "stem");
  std::string stream = net.add(Relu{}, {}, "stem_relu");
  if (shape.large_images)
    stream = net.add(MaxPool{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}, {}, "stem_pool");
  std::uint32_t channels = shape.filters;
  for (std::uint32_t stage = 0; stage < shape.blocks.size(); ++stage) {
    const std::uint32_t inner = shape.filters << stage, outer = shape.bottleneck ? 4 * inner : inner;
    for (std::uint32_t block = 0; block < shape.blocks[stage]; ++block) {
      const auto name = [&](const char* what) { return text("stage_", stage + 1, ".block_", block + 1, '.', what); };
      const std::uint32_t stride = stage > 0 && block == 0 ? 2 : 1;
      std::string made;
      if (shape.bottleneck) {
        convolve(inner, 1, 1, {stream}, name("narrow"));
        net.add(Relu{}, {}, name("narrow_relu"));
        convolve(inner, 3, stride, {}, name("conv"));
        net.add(Relu{}, {}, name("conv_relu"));
        made = convolve(outer, 1, 1, {}, name("widen"));
      } else {
        convolve(inner, 3, stride, {stream}, name("conv_1"));
        net.add(Relu{}, {}, name("conv_1_relu"));
        made = convolve(inner, 3, 1, {}, name("conv_2"));
      }
      if (stride != 1 || channels != outer) stream = convolve(outer, 1, stride, {stream}, name("shortcut"));
      net.add(Add{}, {made, stream}, name("sum"));
      stream = net.add(Relu{}, {}, name("out"));
      channels = outer;
    }
  }
  net.add(GlobalAveragePool{});
  net.add(Dense{label.classes}, {}, "logits");
  return {settings.model.name, {std::move(image), label}, settings.model.dtype, net.finish()};
}

/// A decoder like GPT-2 (Radford et al. 2019, section 2.3): embeddings of bytes and places; blocks of attention and of
/// two dense layers, each after a layer norm and added to its input; a last norm; and logits for each place.
Graph build_gpt(const Settings& settings, const std::vector<Field>& fields) {
  const Field tokens = needed_field(settings, fields, kTokens), label = needed_field(settings, fields, kLabel);
  const auto& model = settings.model;
  TROUPE_CHECK(model.width % model.heads == 0, Code::invalid, "model.width = ", model.width,
               ": is not a multiple of model.heads = ", model.heads, ", the parts that attention cuts it into");
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

/// The same graph with the settings' label smoothing in its last loss.
Graph with_smoothing(const Settings& settings, const Graph& graph) {
  const double smoothing = settings.model.label_smoothing;
  std::vector<Layer> layers = graph.layers();
  auto* const loss = std::get_if<SoftmaxCrossEntropy>(&layers.back().operation);
  TROUPE_CHECK(loss != nullptr, Code::invalid, "model.label_smoothing = ", smoothing, ": the last layer, ",
               layers.back().name, ", is not a softmax_cross_entropy; leave the key out");
  TROUPE_CHECK(loss->smoothing == 0 || loss->smoothing == smoothing, Code::invalid,
               "model.label_smoothing = ", smoothing, ", but layer ", layers.back().name,
               " has smoothing = ", loss->smoothing, "; leave one of them out");
  loss->smoothing = smoothing;
  return {graph.name(), graph.fields(), graph.dtype(), std::move(layers)};
}

/// Of layers that read the data's first field, the labels, and what they name.
Graph graph_of(const Settings& settings, std::string name, const std::vector<Field>& fields,
               std::vector<Layer> layers) {
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
    if (field.dtype != DType::i32) read.back().dtype = batch_type(settings.model.dtype);
  }
  return {std::move(name), std::move(read), settings.model.dtype, std::move(layers)};
}

std::string loss_name(const std::vector<Layer>& layers) {
  std::string name = "loss";
  while (std::ranges::find(layers, name, &Layer::name) != layers.end()) name += "_";
  return name;
}

/// The loss has the sigmoid that a file ends with.
void leave_out_sigmoid(OnnxModel& model) {
  const Layer last = model.layers.back();
  if (model.layers.size() < 2 || last.name != model.output || !std::holds_alternative<Sigmoid>(last.operation)) return;
  model.layers.pop_back();
  model.output = last.inputs.empty() ? model.layers.back().name : last.inputs.front();
}

/// The layers of the file; then those of model.layers, of which the first one reads what the file puts out, or the loss
/// of classifiers.
Graph build_from_onnx(const Settings& settings, const std::vector<Field>& fields) {
  OnnxModel model = read_onnx_file(settings.model.onnx_file, fields, settings.model.onnx_output);
  std::vector<Layer> more = settings.model.layers;
  if (more.empty()) more.push_back({"loss", SoftmaxCrossEntropy{}});
  const bool has_softmax = std::holds_alternative<SoftmaxCrossEntropy>(more.front().operation);
  TROUPE_CHECK(model.softmax.empty() || has_softmax, Code::invalid, settings.model.onnx_file,
               ": ends with a softmax, node ", model.softmax,
               ", which is left out only for softmax_cross_entropy; export the model without it, or begin ",
               "model.layers with that loss");
  if (std::holds_alternative<SigmoidCrossEntropy>(more.front().operation)) leave_out_sigmoid(model);
  const bool follows = model.layers.back().name == model.output;
  if (!follows && more.front().inputs.empty()) {
    more.front().inputs = {model.output};
    if (kind_of(more.front().operation).is_loss) more.front().inputs.emplace_back(kLabel);
  }
  if (more.back().name == "loss") more.back().name = loss_name(model.layers);  // which no layer reads
  for (Layer& layer : more) {
    TROUPE_CHECK(std::ranges::find(model.layers, layer.name, &Layer::name) == model.layers.end(), Code::invalid,
                 "model.layers has a layer ", layer.name, ", and so has ", settings.model.onnx_file,
                 "; give it another name");
    model.layers.push_back(std::move(layer));
  }
  return graph_of(settings, model.name, fields, std::move(model.layers));
}

struct Registered {
  std::string_view name;
  Graph (*build)(const Settings&, const std::vector<Field>&);
};
constexpr std::array kModels{Registered{"mlp", build_mlp}, Registered{"lenet", build_lenet},
                             Registered{"convnet", build_convnet}, Registered{"resnet", build_resnet},
                             Registered{"gpt", build_gpt}};

Graph build_without_smoothing(const Settings& settings, const std::vector<Field>& fields) {
  if (!settings.model.onnx.empty()) return build_from_onnx(settings, fields);
  if (!settings.model.layers.empty()) return graph_of(settings, "layers", fields, settings.model.layers);
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
  if (settings.model.label_smoothing > 0) graph = with_smoothing(settings, graph);
  graph.recompute(recomputed_ranges(graph, settings.train.recompute));
  check_generates(settings, graph);
  return graph;
}

void check_generates(const Settings& settings, const Graph& graph) {
  if (settings.evaluate.text.bytes == 0) return;
  const std::string refused = text_refusal(graph);
  TROUPE_CHECK(refused.empty(), Code::invalid, "evaluate.text_bytes = ", settings.evaluate.text.bytes, ": model ",
               graph.name(), " cannot generate text: ", refused, "; leave the key out");
}

}  // namespace troupe
