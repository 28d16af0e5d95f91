// What descriptors need, and what they mean.
#include "tests/support/cuda_host/cudnn/descriptors.hpp"

#include <utility>

namespace troupe::cuda::dnn::host {
namespace {

using Rules = std::map<Attribute, AttributeRule>;
using enum Attribute;

Rules operation_rules(Attribute images, Attribute weights, Attribute output, Attribute convolution, Attribute alpha,
                      Attribute beta) {
  const AttributeRule descriptor{ElementType::descriptor, 1, true}, factor{ElementType::f32, 1, true};
  return {{images, descriptor},      {weights, descriptor}, {output, descriptor},
          {convolution, descriptor}, {alpha, factor},       {beta, factor}};
}

const std::map<DescriptorType, Rules>& all_rules() {
  using Type = ElementType;
  static const std::map<DescriptorType, Rules> rules{
      {DescriptorType::pointwise,
       {{Attribute::pointwise_mode, {Type::pointwise_mode, 1, true}},
        {pointwise_compute, {Type::data_type, 1, true}},
        {pointwise_axis, {Type::int64, 1, false}}}},
      {DescriptorType::convolution,
       {{convolution_compute, {Type::data_type, 1, true}},
        {convolution_mode, {Type::convolution_mode, 1, true}},
        {convolution_spatial_dims, {Type::int64, 1, true}},
        {convolution_dilations, {Type::int64, 2, true}},
        {convolution_strides, {Type::int64, 2, true}},
        {convolution_pre_paddings, {Type::int64, 2, true}},
        {convolution_post_paddings, {Type::int64, 2, true}}}},
      {DescriptorType::tensor,
       {{tensor_type, {Type::data_type, 1, true}},
        {tensor_dimensions, {Type::int64, 4, true}},
        {tensor_strides, {Type::int64, 4, true}},
        {tensor_id, {Type::int64, 1, true}},
        {tensor_alignment, {Type::int64, 1, true}},
        {tensor_is_virtual, {Type::boolean, 1, false}},
        {tensor_is_by_value, {Type::boolean, 1, false}}}},
      {DescriptorType::convolution_forward, operation_rules(forward_images, forward_weights, forward_output,
                                                            forward_convolution, forward_alpha, forward_beta)},
      {DescriptorType::convolution_to_images, operation_rules(to_images_images, to_images_weights, to_images_output,
                                                              to_images_convolution, to_images_alpha, to_images_beta)},
      {DescriptorType::convolution_to_weights,
       operation_rules(to_weights_images, to_weights_weights, to_weights_output, to_weights_convolution,
                       to_weights_alpha, to_weights_beta)},
      {DescriptorType::pointwise_operation,
       {{pointwise_operation_pointwise, {Type::descriptor, 1, true}},
        {pointwise_operation_x, {Type::descriptor, 1, true}},
        {pointwise_operation_b, {Type::descriptor, 1, false}},
        {pointwise_operation_t, {Type::descriptor, 1, false}},
        {pointwise_operation_y, {Type::descriptor, 1, true}}}},
      {DescriptorType::product, {{product_compute, {Type::data_type, 1, true}}}},
      {DescriptorType::product_operation,
       {{product_product, {Type::descriptor, 1, true}},
        {product_a, {Type::descriptor, 1, true}},
        {product_b, {Type::descriptor, 1, true}},
        {product_c, {Type::descriptor, 1, true}}}},
      {DescriptorType::reduction,
       {{reduction_compute, {Type::data_type, 1, true}},
        {Attribute::reduction_operator, {Type::reduction_operator, 1, true}}}},
      {DescriptorType::reduction_operation,
       {{reduction_reduction, {Type::descriptor, 1, true}},
        {reduction_x, {Type::descriptor, 1, true}},
        {reduction_y, {Type::descriptor, 1, true}}}},
      {DescriptorType::reshape, {{reshape_x, {Type::descriptor, 1, true}}, {reshape_y, {Type::descriptor, 1, true}}}},
      {DescriptorType::graph,
       {{graph_handle, {Type::handle, 1, true}}, {graph_operations, {Type::descriptor, 0, true}}}},
      {DescriptorType::heuristics,
       {{heuristics_graph, {Type::descriptor, 1, true}}, {heuristics_mode, {Type::heuristics_mode, 1, true}}}},
      {DescriptorType::engine, {{engine_graph, {Type::descriptor, 1, true}}, {engine_index, {Type::int64, 1, true}}}},
      {DescriptorType::knob_choice, {{knob_type, {Type::knob_type, 1, true}}, {knob_value, {Type::int64, 1, true}}}},
      {DescriptorType::config,
       {{config_engine, {Type::descriptor, 1, true}}, {config_knob_choices, {Type::descriptor, 0, false}}}},
      {DescriptorType::plan, {{plan_handle, {Type::handle, 1, true}}, {plan_config, {Type::descriptor, 1, true}}}},
      {DescriptorType::variant_pack,
       {{pack_ids, {Type::int64, 0, true}},
        {pack_pointers, {Type::void_pointer, 0, true}},
        {pack_workspace, {Type::void_pointer, 1, false}}}},
  };
  return rules;
}

/// Finds the descriptors that others are made of.
struct Finder {
  const DescriptorState& of;
  const PlacePtr& place;

  std::vector<DescriptorPtr> all(Attribute attribute) const {
    std::vector<DescriptorPtr> found;
    for (const Descriptor each : of.all<Descriptor>(attribute))
      if (auto one = known().descriptors.find(each, place)) found.push_back(std::move(one));
    return found;
  }
  DescriptorPtr one(Attribute attribute) const {
    const auto found = all(attribute);
    return found.empty() ? nullptr : found[0];
  }
};

Status wrong(std::string& mistake, std::string text) {
  mistake = std::move(text);
  return Status::bad_param;
}

Status read_tensor(DescriptorState& of, std::string& mistake) {
  TensorForm& tensor = of.tensor;
  const auto extents = of.all<std::int64_t>(tensor_dimensions), strides = of.all<std::int64_t>(tensor_strides);
  for (std::size_t i = 0; i < 4; ++i) tensor.extents[i] = extents[i], tensor.strides[i] = strides[i];
  tensor.type = of.one<DataType>(tensor_type), tensor.id = of.one<std::int64_t>(tensor_id);
  tensor.alignment = of.one<std::int64_t>(tensor_alignment),
  tensor.is_virtual = of.one<std::uint8_t>(tensor_is_virtual) != 0;
  tensor.is_by_value = of.one<std::uint8_t>(tensor_is_by_value) != 0;
  for (const std::int64_t extent : extents)
    if (extent < 1) return wrong(mistake, "a tensor with an extent of " + std::to_string(extent));
  for (const std::int64_t stride : strides)
    if (stride < 1) return wrong(mistake, "a tensor with a stride of " + std::to_string(stride));
  if (tensor.is_by_value && (tensor.is_virtual || tensor.count() != 1 || tensor.type != DataType::f32))
    return wrong(mistake, "a tensor " + tensor.text() + " by value, which is not one number in f32");
  if (tensor.alignment < 1 || (tensor.alignment & (tensor.alignment - 1)) != 0)
    return wrong(mistake, "an alignment of " + std::to_string(tensor.alignment) + " bytes");
  const bool is_known = tensor.type == DataType::f32 || tensor.type == DataType::f16 || tensor.type == DataType::bf16 ||
                        tensor.type == DataType::i32 || tensor.type == DataType::boolean;
  return is_known ? Status::success : Status::not_supported;
}

/// Images, and what is computed of them, have their channels next to each other; empty: all have.
std::string mistake_in_order(std::initializer_list<DescriptorPtr> tensors) {
  for (const DescriptorPtr& one : tensors)
    if (one != nullptr && !one->tensor.is_channels_last())
      return "strides that are not those of " + one->tensor.text() + " with channels next to each other";
  return {};
}

/// The attributes of an operation, in the order of operation_rules().
std::array<Attribute, 6> attributes_of(DescriptorType type) {
  if (type == DescriptorType::convolution_forward)
    return {forward_images, forward_weights, forward_output, forward_convolution, forward_alpha, forward_beta};
  if (type == DescriptorType::convolution_to_images)
    return {to_images_images,      to_images_weights, to_images_output,
            to_images_convolution, to_images_alpha,   to_images_beta};
  return {to_weights_images,      to_weights_weights, to_weights_output,
          to_weights_convolution, to_weights_alpha,   to_weights_beta};
}

Status read_operation(DescriptorState& of, const PlacePtr& place, std::string& mistake) {
  const auto at = attributes_of(of.type);
  const Finder find{of, place};
  const auto images = find.one(at[0]), weights = find.one(at[1]), output = find.one(at[2]), how = find.one(at[3]);
  if (!images || !weights || !output || !how) return Status::bad_param;
  if (std::string found = mistake_in_order({images, weights, output}); !found.empty())
    return wrong(mistake, std::move(found));
  const auto pair = [&](Attribute attribute) {
    const auto found = how->all<std::int64_t>(attribute);
    return std::array<std::int64_t, 2>{found[0], found[1]};
  };
  Convolution form;
  form.kind = of.type, form.images = images->tensor, form.weights = weights->tensor, form.output = output->tensor;
  form.padding = pair(convolution_pre_paddings), form.stride = pair(convolution_strides);
  form.dilation = pair(convolution_dilations);
  form.adds = of.one<float>(at[5]) == 1;
  if (form.padding != pair(convolution_post_paddings)) return Status::not_supported;
  const auto &in = form.images.extents, &kernel = form.weights.extents, &out = form.output.extents;
  bool fits = in[0] == out[0] && kernel[0] == out[1] && in[1] % kernel[1] == 0 && kernel[0] % (in[1] / kernel[1]) == 0;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t window = form.dilation[i] * (kernel[i + 2] - 1) + 1, whole = in[i + 2] + 2 * form.padding[i];
    fits = fits && window <= whole && out[i + 2] == (whole - window) / form.stride[i] + 1;
  }
  if (!fits)
    return wrong(mistake, "tensors that do not match: images " + form.images.text() + ", weights " +
                              form.weights.text() + ", output " + form.output.text());
  if (form.images.type != form.weights.type && of.type == DescriptorType::convolution_forward)
    return Status::not_supported;
  of.convolution = form;
  return Status::success;
}

/// A convolution, or one with a bias, a ReLU or both behind it. Whatever lies between them is virtual.
Status read_convolution(DescriptorState& of, const std::vector<DescriptorPtr>& operations, const PlacePtr& place,
                        std::string& mistake) {
  Convolution form = *operations[0]->convolution;
  for (std::size_t i = 1; i < operations.size(); ++i) {
    const Finder find{*operations[i], place};
    const auto what = find.one(pointwise_operation_pointwise), x = find.one(pointwise_operation_x),
               b = find.one(pointwise_operation_b), y = find.one(pointwise_operation_y);
    if (!what || !x || !y) return Status::not_supported;
    if (x->tensor.id != form.output.id || !x->tensor.is_virtual)
      return wrong(mistake, "an operation that does not read what the one before it has put out");
    if (x->tensor.extents != y->tensor.extents) return wrong(mistake, "an operation whose tensors differ in extents");
    const bool adds_bias = what->one<PointwiseMode>(Attribute::pointwise_mode) == PointwiseMode::add;
    if (adds_bias != (b != nullptr) || form.has_relu) return Status::not_supported;
    if (adds_bias && b->tensor.extents != std::array<std::int64_t, 4>{1, form.output.extents[1], 1, 1})
      return wrong(mistake, "a bias " + b->tensor.text() + " of an output " + form.output.text());
    if (adds_bias)
      form.bias = b->tensor;
    else
      form.has_relu = true;
    form.output = y->tensor;
  }
  for (const Computation::Operand& one : form.tensors())
    if (one.tensor.type != form.images.type) return Status::not_supported;
  if (operations.size() > 1 && form.kind != DescriptorType::convolution_forward) return Status::not_supported;
  of.work = std::make_shared<const Convolution>(form);
  return Status::success;
}

/// An operation of several: which attributes its tensors are.
Status read_graph_operation(DescriptorState& of, const PlacePtr& place) {
  const Finder find{of, place};
  const auto tensor = [&](Attribute attribute) {
    const auto found = find.one(attribute);
    return found ? std::optional{found->tensor} : std::nullopt;
  };
  GraphOperation made;
  made.kind = of.type;
  const auto take = [&](Attribute x, Attribute y) {
    const auto from = tensor(x), to = tensor(y);
    if (from && to) made.x = *from, made.y = *to;
    return from && to;
  };
  bool is_complete = false;
  if (of.type == DescriptorType::product_operation) {
    is_complete = take(product_a, product_c);
    made.b = tensor(product_b);
  } else if (of.type == DescriptorType::reduction_operation) {
    const auto how = find.one(reduction_reduction);
    is_complete = take(reduction_x, reduction_y) && how;
    if (how) made.reduction = how->one<ReductionOperator>(Attribute::reduction_operator);
  } else if (of.type == DescriptorType::reshape) {
    is_complete = take(reshape_x, reshape_y);
  } else {
    const auto how = find.one(pointwise_operation_pointwise);
    is_complete = take(pointwise_operation_x, pointwise_operation_y) && how;
    made.b = tensor(pointwise_operation_b), made.t = tensor(pointwise_operation_t);
    if (how)
      made.mode = how->one<PointwiseMode>(Attribute::pointwise_mode),
      made.axis = how->one<std::int64_t>(pointwise_axis);
  }
  if (!is_complete || made.axis < 0 || made.axis > 3) return Status::bad_param;
  of.operation = made;
  return Status::success;
}

Status read_composite(DescriptorState& of, const std::vector<DescriptorPtr>& operations, std::string& mistake) {
  auto made = std::make_shared<Composite>();
  for (const DescriptorPtr& each : operations) {
    if (!each->operation) return Status::not_supported;
    made->operations.push_back(*each->operation);
  }
  if (std::string found = made->mistake(); !found.empty()) return wrong(mistake, std::move(found));
  if (!made->is_known()) return Status::not_supported;
  of.work = std::move(made);
  return Status::success;
}

Status read_graph(DescriptorState& of, const PlacePtr& place, std::string& mistake) {
  const auto operations = Finder{of, place}.all(graph_operations);
  if (operations.empty()) return Status::bad_param;
  if (operations.size() > 1 && operations[0]->operation) {
    if (const Status read = read_composite(of, operations, mistake); read != Status::success) return read;
  } else if (operations[0]->convolution) {
    if (const Status read = read_convolution(of, operations, place, mistake); read != Status::success) return read;
  } else {
    if (operations.size() != 1 || !operations[0]->work) return Status::not_supported;
    of.work = operations[0]->work;
  }
  std::map<std::int64_t, int> ids;
  for (const Computation::Operand& one : of.work->tensors()) {
    if (one.tensor.is_virtual) return wrong(mistake, "a virtual tensor that no operation puts out or reads");
    if (++ids[one.tensor.id] > 1) return wrong(mistake, "two tensors with the id " + std::to_string(one.tensor.id));
  }
  return Status::success;
}

Status read_engine(DescriptorState& of, const PlacePtr& place, std::string& mistake) {
  const auto graph = Finder{of, place}.one(engine_graph);
  const auto index = of.one<std::int64_t>(engine_index);
  if (!graph) return Status::bad_param;
  if (index < 0 || index >= kEngines) return Status::not_supported;
  if (!graph->work) return wrong(mistake, "an engine without a graph");
  of.work = graph->work, of.handle = graph->handle, of.config.engine = Engine{index};
  return Status::success;
}

Status read_config(DescriptorState& of, const PlacePtr& place) {
  const Finder find{of, place};
  const auto engine = find.one(config_engine);
  if (!engine) return Status::bad_param;
  of.work = engine->work, of.handle = engine->handle, of.config = engine->config;
  for (const DescriptorPtr& knob : find.all(config_knob_choices)) {
    const auto value = knob->one<std::int64_t>(knob_value);
    if (knob->one<KnobType>(knob_type) != kParts || of.config.engine != Engine::in_parts || value < 1 || value > 4)
      return Status::not_supported;
    of.config.parts = value;
  }
  return Status::success;
}

Status read_plan(DescriptorState& of, const PlacePtr& place, std::string& mistake) {
  const auto config = Finder{of, place}.one(plan_config);
  if (!config) return Status::bad_param;
  of.work = config->work, of.config = config->config, of.handle = of.one<Handle>(plan_handle);
  if (of.handle != config->handle) return wrong(mistake, "a plan with another handle than its graph's");
  return of.config.engine == Engine::cannot_be_built ? Status::not_supported : Status::success;
}

Status read_heuristics(DescriptorState& of, const PlacePtr& place) {
  const auto graph = Finder{of, place}.one(heuristics_graph);
  if (!graph || !graph->work) return Status::bad_param;
  of.work = graph->work, of.handle = graph->handle;
  of.results = proposals(*graph->work, of.one<HeuristicsMode>(heuristics_mode));
  return Status::success;
}

}  // namespace

Known& known() {
  static auto& all = *std::make_unique<Known>().release();  // streams' threads use it to the end
  return all;
}

bool Known::are_there(const DescriptorState& of, const PlacePtr& place) {
  for (const auto& [attribute, value] : of.values) {
    if (value.type != ElementType::descriptor) continue;
    for (const Descriptor part : of.all<Descriptor>(attribute)) {
      const DescriptorPtr found = descriptors.find(part, place);
      if (found == nullptr || !are_there(*found, place)) return false;
    }
  }
  return true;
}

const AttributeRule* rule_of(DescriptorType type, Attribute attribute) {
  const auto of_type = all_rules().find(type);
  if (of_type == all_rules().end()) return nullptr;
  const auto rule = of_type->second.find(attribute);
  return rule == of_type->second.end() ? nullptr : &rule->second;
}

std::size_t bytes_of_element(ElementType type) noexcept {
  switch (type) {
    case ElementType::handle:
    case ElementType::int64:
    case ElementType::void_pointer:
    case ElementType::f64:
    case ElementType::descriptor: return 8;
    case ElementType::boolean: return 1;
    default: return 4;
  }
}

Status finalize(DescriptorState& of, const PlacePtr& place, std::string& mistake) {
  for (const auto& [attribute, rule] : all_rules().at(of.type))
    if (rule.is_needed && !of.has(attribute))
      return wrong(mistake, "no attribute " + std::to_string(static_cast<unsigned>(attribute)));
  switch (of.type) {
    case DescriptorType::tensor: return read_tensor(of, mistake);
    case DescriptorType::convolution_forward:
    case DescriptorType::convolution_to_images:
    case DescriptorType::convolution_to_weights: return read_operation(of, place, mistake);
    case DescriptorType::pointwise_operation:
    case DescriptorType::product_operation:
    case DescriptorType::reduction_operation:
    case DescriptorType::reshape: return read_graph_operation(of, place);
    case DescriptorType::graph: of.handle = of.one<Handle>(graph_handle); return read_graph(of, place, mistake);
    case DescriptorType::heuristics: return read_heuristics(of, place);
    case DescriptorType::engine: return read_engine(of, place, mistake);
    case DescriptorType::config: return read_config(of, place);
    case DescriptorType::plan: return read_plan(of, place, mistake);
    default: return Status::success;
  }
}

}  // namespace troupe::cuda::dnn::host
