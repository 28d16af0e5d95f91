#include "devices/cuda/convolution_plan.hpp"

#include <algorithm>
#include <array>

namespace troupe::cuda {
namespace {

using dnn::Attribute;
using dnn::DescriptorType;
using dnn::ElementType;
using Extents = std::array<std::int64_t, 4>;  // images, channels, height, width, whatever their order in memory

// By which a plan's tensors are known.
constexpr std::int64_t kImages = 1, kWeights = 2, kOutput = 3, kBias = 4, kBetween = 5;

/// Of an operation by its kind.
struct OperationAttributes {
  DescriptorType type;
  Attribute images, weights, output, convolution, alpha, beta;
};
constexpr OperationAttributes kForward{DescriptorType::convolution_forward,
                                       Attribute::forward_images,
                                       Attribute::forward_weights,
                                       Attribute::forward_output,
                                       Attribute::forward_convolution,
                                       Attribute::forward_alpha,
                                       Attribute::forward_beta};
constexpr OperationAttributes kToImages{DescriptorType::convolution_to_images,
                                        Attribute::to_images_images,
                                        Attribute::to_images_weights,
                                        Attribute::to_images_output,
                                        Attribute::to_images_convolution,
                                        Attribute::to_images_alpha,
                                        Attribute::to_images_beta};
constexpr OperationAttributes kToWeights{DescriptorType::convolution_to_weights,
                                         Attribute::to_weights_images,
                                         Attribute::to_weights_weights,
                                         Attribute::to_weights_output,
                                         Attribute::to_weights_convolution,
                                         Attribute::to_weights_alpha,
                                         Attribute::to_weights_beta};

const OperationAttributes& attributes_of(ConvolutionKind kind) noexcept {
  if (kind == ConvolutionKind::forward) return kForward;
  return kind == ConvolutionKind::to_images ? kToImages : kToWeights;
}

dnn::DataType data_type_of(Stored type) noexcept {
  if (type == Stored::f32) return dnn::DataType::f32;
  return type == Stored::f16 ? dnn::DataType::f16 : dnn::DataType::bf16;
}

Extents extents_of_output(const ConvolutionForm& f) { return {f.images, f.filters, f.out_height, f.out_width}; }

}  // namespace

// ---- Descriptors ----

dnn::Descriptor Descriptors::make(DescriptorType type) {
  dnn::Descriptor made = nullptr;
  check([&] { return library_.descriptor_create(type, &made); });
  if (made != nullptr) owned_.emplace_back(made, library_.descriptor_destroy);
  return made;
}

std::vector<dnn::Descriptor> Descriptors::get_all(dnn::Descriptor of, Attribute attribute, DescriptorType type,
                                                  std::int64_t most) {
  std::vector<dnn::Descriptor> found(static_cast<std::size_t>(most));
  for (dnn::Descriptor& each : found) each = make(type);
  const std::int64_t count = most == 0 ? 0 : get(of, attribute, ElementType::descriptor, std::span{found});
  found.resize(static_cast<std::size_t>(std::min(count, most)));
  return found;
}

// What was made of others goes first.
Descriptors::~Descriptors() {
  while (!owned_.empty()) owned_.pop_back();
}

// ---- The graph ----

ConvolutionGraph::ConvolutionGraph(const dnn::Library& library, dnn::Handle handle, const ConvolutionForm& form)
    : library_(library), handle_(handle), form_(form), made_(library) {
  const std::vector<dnn::Descriptor> all = operations();
  graph_ = made_.make(DescriptorType::graph);
  made_.set_one(graph_, Attribute::graph_handle, ElementType::handle, handle_);
  made_.set(graph_, Attribute::graph_operations, ElementType::descriptor, all);
  made_.finalize(graph_);
}

/// Channels lie next to each other.
dnn::Descriptor ConvolutionGraph::tensor(std::int64_t id, std::span<const std::int64_t, 4> extents,
                                         std::uint32_t alignment) {
  const Extents strides{extents[1] * extents[2] * extents[3], 1, extents[1] * extents[3], extents[1]};
  const bool is_between = alignment == 0;  // never in memory: its sums stay f32
  const auto type = is_between ? dnn::DataType::f32 : data_type_of(form_.type);
  const dnn::Descriptor made = made_.make(DescriptorType::tensor);
  made_.set_one(made, Attribute::tensor_type, ElementType::data_type, type);
  made_.set(made, Attribute::tensor_dimensions, ElementType::int64, extents);
  made_.set(made, Attribute::tensor_strides, ElementType::int64, strides);
  made_.set_one(made, Attribute::tensor_id, ElementType::int64, id);
  made_.set_one(made, Attribute::tensor_alignment, ElementType::int64, std::int64_t{is_between ? 16U : alignment});
  if (is_between) made_.set_one(made, Attribute::tensor_is_virtual, ElementType::boolean, true);
  made_.finalize(made);
  return made;
}

dnn::Descriptor ConvolutionGraph::convolution() {
  using Pair = std::array<std::int64_t, 2>;
  const Pair paddings{form_.padding_height, form_.padding_width}, strides{form_.stride_height, form_.stride_width},
      dilations{form_.dilation_height, form_.dilation_width};
  const dnn::Descriptor made = made_.make(DescriptorType::convolution);
  const auto set_pair = [&](Attribute attribute, const Pair& pair) {
    made_.set(made, attribute, ElementType::int64, pair);
  };
  made_.set_one(made, Attribute::convolution_compute, ElementType::data_type, dnn::DataType::f32);
  made_.set_one(made, Attribute::convolution_mode, ElementType::convolution_mode,
                dnn::ConvolutionMode::cross_correlation);
  made_.set_one(made, Attribute::convolution_spatial_dims, ElementType::int64, std::int64_t{2});
  set_pair(Attribute::convolution_pre_paddings, paddings);
  set_pair(Attribute::convolution_post_paddings, paddings);
  set_pair(Attribute::convolution_dilations, dilations);
  set_pair(Attribute::convolution_strides, strides);
  made_.finalize(made);
  return made;
}

/// The groups follow from the channels of images and weights.
dnn::Descriptor ConvolutionGraph::operation(dnn::Descriptor output) {
  const OperationAttributes& of = attributes_of(form_.kind);
  const Extents images{form_.images, form_.channels, form_.height, form_.width};
  const Extents weights{form_.filters, form_.channels / form_.groups, form_.kernel_height, form_.kernel_width};
  const dnn::Descriptor made = made_.make(of.type);
  made_.set_one(made, of.images, ElementType::descriptor, tensor(kImages, images, form_.images_alignment));
  made_.set_one(made, of.weights, ElementType::descriptor, tensor(kWeights, weights, form_.weights_alignment));
  made_.set_one(made, of.output, ElementType::descriptor, output);
  made_.set_one(made, of.convolution, ElementType::descriptor, convolution());
  made_.set_one(made, of.alpha, ElementType::f32, 1.0F);
  made_.set_one(made, of.beta, ElementType::f32, form_.adds ? 1.0F : 0.0F);
  made_.finalize(made);
  return made;
}

dnn::Descriptor ConvolutionGraph::pointwise(dnn::PointwiseMode mode, dnn::Descriptor x, dnn::Descriptor b,
                                            dnn::Descriptor y) {
  const dnn::Descriptor what = made_.make(DescriptorType::pointwise);
  made_.set_one(what, Attribute::pointwise_mode, ElementType::pointwise_mode, mode);
  made_.set_one(what, Attribute::pointwise_compute, ElementType::data_type, dnn::DataType::f32);
  made_.finalize(what);
  const dnn::Descriptor made = made_.make(DescriptorType::pointwise_operation);
  made_.set_one(made, Attribute::pointwise_operation_pointwise, ElementType::descriptor, what);
  made_.set_one(made, Attribute::pointwise_operation_x, ElementType::descriptor, x);
  if (b != nullptr) made_.set_one(made, Attribute::pointwise_operation_b, ElementType::descriptor, b);
  made_.set_one(made, Attribute::pointwise_operation_y, ElementType::descriptor, y);
  made_.finalize(made);
  return made;
}

/// The convolution, then the bias, then the ReLU. What lies between two of them is in no memory.
std::vector<dnn::Descriptor> ConvolutionGraph::operations() {
  const Extents extents = extents_of_output(form_), one_each{1, form_.filters, 1, 1};
  const dnn::Descriptor output = tensor(kOutput, extents, form_.output_alignment);
  std::int64_t next_id = kBetween;
  const auto place_before = [&](bool is_last) { return is_last ? output : tensor(next_id++, extents, 0); };
  dnn::Descriptor last = place_before(!form_.has_bias && !form_.has_relu);
  std::vector<dnn::Descriptor> all{operation(last)};
  if (form_.has_bias) {
    const dnn::Descriptor sum = place_before(!form_.has_relu);
    all.push_back(pointwise(dnn::PointwiseMode::add, last, tensor(kBias, one_each, form_.bias_alignment), sum));
    last = sum;
  }
  if (form_.has_relu) all.push_back(pointwise(dnn::PointwiseMode::relu, last, nullptr, output));
  return all;
}

// ---- Engines ----

namespace {

EngineChoice choice_of(dnn::Descriptor config, Descriptors& asked) {
  EngineChoice choice;
  const auto engines = asked.get_all(config, Attribute::config_engine, DescriptorType::engine, 1);
  if (engines.empty()) return choice;
  choice.engine = asked.get<std::int64_t>(engines[0], Attribute::engine_index, ElementType::int64);
  // Asked for none, the library does not tell how many there are.
  for (const dnn::Descriptor knob :
       asked.get_all(config, Attribute::config_knob_choices, DescriptorType::knob_choice, dnn::kMostKnobs))
    choice.knobs.emplace_back(
        static_cast<std::uint32_t>(asked.get<dnn::KnobType>(knob, Attribute::knob_type, ElementType::knob_type)),
        asked.get<std::int64_t>(knob, Attribute::knob_value, ElementType::int64));
  return choice;
}

}  // namespace

std::vector<EngineChoice> ConvolutionGraph::proposals(dnn::HeuristicsMode mode) const {
  Descriptors asked{library_};
  const dnn::Descriptor heuristics = asked.make(DescriptorType::heuristics);
  asked.set_one(heuristics, Attribute::heuristics_graph, ElementType::descriptor, graph_);
  asked.set_one(heuristics, Attribute::heuristics_mode, ElementType::heuristics_mode, mode);
  asked.finalize(heuristics);
  std::vector<EngineChoice> found;
  const std::int64_t count = asked.count(heuristics, Attribute::heuristics_results, ElementType::descriptor);
  for (const dnn::Descriptor config :
       asked.get_all(heuristics, Attribute::heuristics_results, DescriptorType::config, count))
    found.push_back(choice_of(config, asked));
  if (!asked.ok()) found.clear();
  return found;
}

/// Source: cuDNN's documentation, cudnnBackendNumericalNote_t. In f32 an engine with tensor cores computes in TF32.
bool ConvolutionGraph::may_take(dnn::Descriptor engine, Descriptors& made, bool tf32) const {
  using Note = dnn::NumericalNote;
  std::array<Note, dnn::kMostNotes> notes{};
  const auto count =
      made.get(engine, Attribute::engine_numerical_notes, ElementType::numerical_note, std::span<Note>{notes});
  return std::none_of(notes.begin(), notes.begin() + std::min(count, dnn::kMostNotes), [&](Note note) {
    const bool is_tensor_core = note == Note::tensor_core;
    return note == Note::nondeterministic || note == Note::reduced_precision_reduction || note == Note::winograd_4x4 ||
           note == Note::winograd_6x6 || note == Note::winograd_13x13 || (!tf32 && note == Note::down_convert_inputs) ||
           (!tf32 && form_.type == Stored::f32 && is_tensor_core);
  });
}

std::optional<ConvolutionPlan> ConvolutionGraph::plan(const EngineChoice& choice, bool tf32) const {
  ConvolutionPlan found{.graph = shared_from_this(), .made = std::make_unique<Descriptors>(library_), .choice = choice};
  Descriptors& made = *found.made;
  const dnn::Descriptor engine = made.make(DescriptorType::engine);
  made.set_one(engine, Attribute::engine_graph, ElementType::descriptor, graph_);
  made.set_one(engine, Attribute::engine_index, ElementType::int64, choice.engine);
  made.finalize(engine);
  if (!made.ok() || !may_take(engine, made, tf32)) return std::nullopt;
  std::vector<dnn::Descriptor> knobs;
  for (const auto& [type, value] : choice.knobs) {
    const dnn::Descriptor knob = knobs.emplace_back(made.make(DescriptorType::knob_choice));
    made.set_one(knob, Attribute::knob_type, ElementType::knob_type, dnn::KnobType{type});
    made.set_one(knob, Attribute::knob_value, ElementType::int64, value);
    made.finalize(knob);
  }
  const dnn::Descriptor config = made.make(DescriptorType::config);
  made.set_one(config, Attribute::config_engine, ElementType::descriptor, engine);
  if (!knobs.empty()) made.set(config, Attribute::config_knob_choices, ElementType::descriptor, knobs);
  made.finalize(config);
  found.plan = made.make(DescriptorType::plan);
  made.set_one(found.plan, Attribute::plan_handle, ElementType::handle, handle_);
  made.set_one(found.plan, Attribute::plan_config, ElementType::descriptor, config);
  made.finalize(found.plan);
  found.workspace_bytes = static_cast<std::uint64_t>(
      made.get<std::int64_t>(found.plan, Attribute::plan_workspace_bytes, ElementType::int64));
  return made.ok() ? std::optional{std::move(found)} : std::nullopt;
}

dnn::Status execute(const dnn::Library& library, dnn::Handle handle, const ConvolutionCall& call) {
  std::vector<std::int64_t> ids{kImages, kWeights, kOutput};
  std::vector<const void*> places{call.places.images, call.places.weights, call.places.output};
  if (call.places.bias != nullptr) ids.push_back(kBias), places.push_back(call.places.bias);
  Descriptors made{library};
  const dnn::Descriptor pack = made.make(DescriptorType::variant_pack);
  made.set(pack, Attribute::pack_ids, ElementType::int64, ids);
  made.set(pack, Attribute::pack_pointers, ElementType::void_pointer, places);
  made.set_one(pack, Attribute::pack_workspace, ElementType::void_pointer, call.workspace);
  made.finalize(pack);
  return made.ok() ? library.execute(handle, call.plan->plan, pack) : made.status();
}

}  // namespace troupe::cuda
