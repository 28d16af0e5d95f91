#include "devices/cpu/program_builder.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "devices/cpu/image_layouts.hpp"
#include "devices/cpu/kernels/weight_layouts.hpp"
#include "devices/cpu/layers/layers.hpp"
#include "devices/cpu/parallel.hpp"
#include "runtime/model/layer_kinds.hpp"

namespace troupe::cpu {

using dnnl::algorithm;
using dnnl::memory;

namespace {

/// Copies 16 filters of a convolution's weights; null: no kernel of our own does.
template <class Element>
using GroupCopy = std::function<void(std::size_t group, const Element* from, Element* to)>;

/// The copy of a convolution's weights, or of the gradient to them, from one layout to another.
struct WeightCopy {
  using Tag = memory::format_tag;
  using Type = memory::data_type;
  const WeightLayoutKernels* kernels;
  ConvolutionWeights of;
  memory from, to;

  static bool is(const memory& one, Type type, Tag tag) {
    return one.get_desc() == memory::desc(dims_of(one.get_desc()), type, tag);
  }
  GroupCopy<float> f32() const {
    if (is(to, Type::f32, Tag::abcd) && is(from, Type::f32, Tag::ABcd16b16a))
      return [*this](auto group, auto* source, auto* target) { kernels->from_blocks(of, group, source, target); };
    if (!is(from, Type::f32, Tag::abcd)) return nullptr;
    const std::size_t all = of.channels;
    for (const auto& [filters, channels, tag] : {std::tuple{16U, std::size_t{16}, Tag::ABcd16b16a},
                                                 {16U, all, Tag::Acdb16a},
                                                 {32U, all, Tag::Acdb32a},
                                                 {64U, all, Tag::Acdb64a}})
      if (of.filters % filters == 0 && is(to, Type::f32, tag))
        return [*this, blocks = FilterBlocks{filters, channels}](auto group, auto* source, auto* target) {
          kernels->to_filters(of, group, blocks, source, target);
        };
    for (const auto& [channels_first, tag] : {std::pair{false, Tag::ABcd16a16b}, {true, Tag::BAcd16a16b}})
      if (is(to, Type::f32, tag))
        return [*this, first = channels_first](auto group, auto* source, auto* target) {
          kernels->to_channels(of, group, first, source, target);
        };
    return nullptr;
  }
  GroupCopy<std::uint16_t> bf16() const {
    if (!is(from, Type::bf16, Tag::abcd)) return nullptr;
    for (const auto& [block, tag] : {std::pair{16U, Tag::AcdB16a2b}, {32U, Tag::AcdB32a2b}, {64U, Tag::AcdB64a2b}})
      if (of.filters % block == 0 && is(to, Type::bf16, tag))
        return [*this, block = block](auto group, auto* source, auto* target) {
          kernels->to_pairs_of_channels(of, group, block, source, target);
        };
    for (const auto& [channels_first, tag] : {std::pair{false, Tag::ABcd8a16b2a}, {true, Tag::BAcd8a16b2a}})
      if (is(to, Type::bf16, tag))
        return [*this, first = channels_first](auto group, auto* source, auto* target) {
          kernels->to_pairs_of_filters(of, group, first, source, target);
        };
    return nullptr;
  }
};

/// Adds the copy of a convolution's weights, or of the gradient to them, by a kernel of our own. False: there is none
/// for these layouts. A group of filters is one thread's work.
bool arranges_weights(Calls& calls, const memory& from, const memory& to) {
  const WeightLayoutKernels* const kernels = usable_weight_layouts();
  const memory::dims dims = dims_of(from.get_desc());
  if (kernels == nullptr || dims.size() != 4 || type_of(from) != type_of(to)) return false;
  const auto size = [&](std::size_t dim) { return static_cast<std::size_t>(dims[dim]); };
  const ConvolutionWeights of{size(0), size(1), size(2) * size(3)};
  if (of.filters % of.kFilters != 0 || of.channels % of.kChannels != 0 || of.taps % 2 == 0 || of.taps > of.kMostTaps)
    return false;
  const auto add = [&]<class Element>(GroupCopy<Element> copy) {
    if (!copy) return false;
    calls.emplace_back(
        OwnWork{{from, to}, [of, from, to, copy = std::move(copy), threads = usable_threads()](const Kernels&) {
                  const auto* const source = static_cast<const Element*>(from.get_data_handle());
                  auto* const target = static_cast<Element*>(to.get_data_handle());
                  for_each_in_parallel(threads, of.groups(),
                                       [&](std::size_t group, std::size_t) { copy(group, source, target); });
                }});
    return true;
  };
  const WeightCopy copy{kernels, of, from, to};
  return add(copy.f32()) || add(copy.bf16());
}

bool is_loss(const Layer& layer) { return kind_of(layer.operation).is_loss; }

/// Whether a primitive of `operation` can apply `activation` to its output.
bool takes_activation(const troupe::Operation& operation, Activation activation) {
  if (std::holds_alternative<BatchNorm>(operation)) return activation == Activation::relu;
  return std::holds_alternative<Dense>(operation) || std::holds_alternative<Conv2d>(operation);
}

Activation as_activation(const troupe::Operation& operation) {
  if (std::holds_alternative<Relu>(operation)) return Activation::relu;
  if (std::holds_alternative<Tanh>(operation)) return Activation::tanh;
  if (std::holds_alternative<Sigmoid>(operation)) return Activation::sigmoid;
  return Activation::none;
}

/// Adds a PixelGradient to a gradient of whole images; without `adds`, that one is 0 before.
struct AddPixels {
  PixelGradient of;
  memory to;
  bool adds;
  std::size_t threads;

  void operator()(const Kernels& kernels) const {
    for_each_in_parallel(threads, of.planes, [&](std::size_t plane, std::size_t) {
      if (is_f32(to))
        add_plane<float>(plane, kernels.add_apart_f32);
      else
        add_plane<std::uint16_t>(plane, kernels.add_apart_bf16);
    });
  }

  template <class T, class Add>
  void add_plane(std::size_t plane, Add add) const {
    const std::size_t row = of.width * of.elements, read = (of.width - 1) / of.stride_width + 1;
    auto* into = static_cast<T*>(to.get_data_handle()) + plane * of.height * row;
    const auto* from = static_cast<const T*>(of.value.get_data_handle()) +
                       plane * ((of.height - 1) / of.stride_height + 1) * read * of.elements;
    if (!adds) std::fill_n(into, of.height * row, T{});
    for (std::size_t y = 0; y < of.height; y += of.stride_height, from += read * of.elements)
      add(into + y * row, of.stride_width * of.elements, from, of.elements, read);
  }
};

/// For a memory without padding.
std::uint64_t count_elements(const memory& of) {
  const memory::dims dims = dims_of(of.get_desc());
  return static_cast<std::uint64_t>(
      std::accumulate(dims.begin(), dims.end(), memory::dim{1}, std::multiplies<memory::dim>{}));
}

}  // namespace

ProgramBuilder::ProgramBuilder(const Graph& graph, const Layout& layout, const ProgramMemory& memory,
                               std::uint32_t rows, const dnnl::engine& engine, TensorMemory& places)
    : graph_(graph),
      layout_(layout),
      memory_(memory),
      rows_(rows),
      stored_(graph.dtype() == DType::bf16 ? Type::bf16 : Type::f32),
      computed_(stored_ == Type::bf16 && onednn_has_bf16() ? Type::bf16 : Type::f32),
      engine_(engine),
      places_(places) {
  read_tensors();
  // Only for f32 are there convolutions that are faster with blocks.
  blocked_.resize(same_.size());
  if (stored_ == Type::f32 && onednn_has_winograd()) blocked_ = tensors_in_blocks(graph_, same_, rows_);
  read_stages();
  move_activations_behind_pools();
  take_values();
}

void ProgramBuilder::read_tensors() {
  const auto& layers = graph_.layers();
  const auto fields = static_cast<std::uint32_t>(graph_.fields().size());
  for (std::uint32_t t = 0; t < fields + layers.size(); ++t) {
    const bool flattens = t >= fields && std::holds_alternative<Flatten>(layers[t - fields].operation);
    same_.push_back(flattens ? same_[graph_.inputs_of(t - fields).front()] : t);
    tensors_.push_back({graph_.shape_of(t).count_elements(), graph_.is_trained(t), 0, {}});
    if (t >= fields) continue;
    const Type type = graph_.fields()[t].dtype == DType::i32 ? Type::s32 : stored_;
    tensors_[t].value = places_.field(t, matrix(rows_, tensors_[t].width, type));
  }
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (std::holds_alternative<Flatten>(layers[l].operation)) continue;
    for (const std::uint32_t input : graph_.inputs_of(l)) ++tensors_[same_[input]].readers;
  }
}

void ProgramBuilder::read_stages() {
  const auto& layers = graph_.layers();
  std::vector<bool> fused(layers.size());
  for (std::uint32_t l = 0; l < layers.size(); ++l) {
    if (fused[l] || is_loss(layers[l]) || std::holds_alternative<Flatten>(layers[l].operation)) continue;
    FusedLayer fused_layer{
        .layer = l, .inputs = {}, .output = graph_.output_tensor(l), .input_shape = {}, .output_shape = {}};
    for (const std::uint32_t input : graph_.inputs_of(l)) fused_layer.inputs.push_back(same_[input]);
    fused_layer.input_shape = graph_.shape_of(graph_.inputs_of(l).front());
    fused_layer.output_shape = graph_.output_of(l);
    for (std::size_t p = graph_.parameters().size(); p-- > 0;) {
      if (graph_.parameters()[p].layer != l) continue;
      fused_layer.first_parameter = p;
      ++fused_layer.count_parameters;
    }
    take_sum(fused_layer, fused);
    fused_layer.activation = take_activation(fused_layer, fused);
    fused_layers_.push_back(std::move(fused_layer));
  }
}

/// The sum of two tensors that comes next and alone reads what a batch norm puts out. The sum's output becomes the
/// norm's.
void ProgramBuilder::take_sum(FusedLayer& norm, std::vector<bool>& fused) const {
  const std::uint32_t next = norm.layer + 1;
  const auto* const operation = std::get_if<BatchNorm>(&graph_.layers()[norm.layer].operation);
  if (operation == nullptr || next == graph_.layers().size() || tensors_[norm.output].readers != 1) return;
  const std::vector<std::uint32_t>& summands = graph_.inputs_of(next);
  if (!std::holds_alternative<Add>(graph_.layers()[next].operation) || summands.size() != 2) return;
  if (!has_own_batch_norm(*this, *operation)) return;
  const bool is_first = same_[summands[0]] == norm.output;
  if (!is_first && same_[summands[1]] != norm.output) return;
  norm.inputs.push_back(same_[summands[is_first ? 1 : 0]]);
  norm.output = graph_.output_tensor(next);
  norm.adds = fused[next] = true;
}

/// The activation that is the only reader of the fused layer's output. The activation's output becomes the fused
/// layer's.
Activation ProgramBuilder::take_activation(FusedLayer& fused_layer, std::vector<bool>& fused) const {
  if (tensors_[fused_layer.output].readers != 1) return Activation::none;
  for (std::uint32_t l = fused_layer.layer + 1; l < graph_.layers().size(); ++l) {
    const Activation activation = as_activation(graph_.layers()[l].operation);
    if (activation == Activation::none || same_[graph_.inputs_of(l).front()] != fused_layer.output) continue;
    if (!takes_activation(graph_.layers()[fused_layer.layer].operation, activation)) return Activation::none;
    fused[l] = true;
    fused_layer.output = graph_.output_tensor(l);
    return activation;
  }
  return Activation::none;
}

void ProgramBuilder::move_activations_behind_pools() {
  for (FusedLayer& pool : fused_layers_) {
    if (!std::holds_alternative<MaxPool>(graph_.layers()[pool.layer].operation)) continue;
    const std::uint32_t input = pool.inputs.front();
    const auto before = std::ranges::find(fused_layers_, input, &FusedLayer::output);
    if (before == fused_layers_.end() || !std::holds_alternative<Conv2d>(graph_.layers()[before->layer].operation))
      continue;
    if (tensors_[input].readers != 1 || tensors_[pool.output].width >= tensors_[input].width) continue;
    pool.activation = std::exchange(before->activation, Activation::none);
  }
}

void ProgramBuilder::begin_recomputation(const LayerRange& range) {
  computes_again_ = true;
  std::vector<std::uint32_t> readers(tensors_.size());
  const auto is_inside = [&](const FusedLayer& fused_layer) {
    return fused_layer.layer >= range.first && fused_layer.layer <= range.last;
  };
  for (const FusedLayer& fused_layer : fused_layers_) {
    if (!is_inside(fused_layer)) continue;
    for (const std::uint32_t input : fused_layer.inputs) ++readers[input];
  }
  for (const FusedLayer& fused_layer : fused_layers_) {
    FlowTensor& output = tensors_[fused_layer.output];
    if (is_inside(fused_layer) && readers[fused_layer.output] == output.readers)
      output.value = places_.take(output.value.get_desc());
  }
}

bool ProgramBuilder::is_read_by_one_loss(std::uint32_t tensor) const {
  if (tensors_[tensor].readers != 1) return false;
  for (std::size_t l = 0; l < graph_.layers().size(); ++l)
    if (is_loss(graph_.layers()[l]) && same_[graph_.inputs_of(l).front()] == tensor) return true;
  return false;
}

void ProgramBuilder::take_values() {
  for (const FusedLayer& fused_layer : fused_layers_) {
    FlowTensor& output = tensors_[fused_layer.output];
    // A dense layer gives its loss f32, whatever type tensors are stored in.
    const bool f32 = std::holds_alternative<Dense>(graph_.layers()[fused_layer.layer].operation) &&
                     (fused_layer.activation == Activation::none || fused_layer.activation == Activation::relu) &&
                     is_read_by_one_loss(fused_layer.output);
    output.value = places_.take(matrix(rows_, output.width, f32 ? Type::f32 : stored_));
  }
}

Activation ProgramBuilder::activation_of(std::uint32_t tensor) const noexcept {
  const auto at = std::ranges::find(fused_layers_, tensor, &FusedLayer::output);
  if (at == fused_layers_.end()) return Activation::none;
  const bool is_norm = std::holds_alternative<BatchNorm>(graph_.layers()[at->layer].operation);
  return is_norm && !at->adds ? Activation::none : at->activation;
}

memory::desc ProgramBuilder::matrix(std::uint64_t rows, std::uint64_t columns, Type type) const {
  return {{static_cast<memory::dim>(rows), static_cast<memory::dim>(columns)}, type, memory::format_tag::ab};
}

memory::desc ProgramBuilder::image(const Shape& shape, std::uint32_t tensor, Type type) const {
  const auto& of = shape.extents;
  return {{rows_, of.at(2), of.at(0), of.at(1)},
          type,
          in_blocks(tensor) ? memory::format_tag::nChw16c : memory::format_tag::nhwc};
}

memory::desc ProgramBuilder::image_beside(std::uint32_t other, const Shape& shape, std::uint32_t tensor,
                                          Type type) const {
  return image(shape, shape.extents.at(2) == kBlockChannels ? other : tensor, type);
}

memory ProgramBuilder::field(std::string_view name) const {
  const auto at = std::ranges::find(graph_.fields(), name, &Field::name);
  return places_.field(static_cast<std::size_t>(at - graph_.fields().begin()),
                       matrix(rows_, at->shape.count_elements(), Type::s32));
}

memory ProgramBuilder::value_as(std::uint32_t tensor, const Descriptor& desc) const {
  if (tensor < graph_.fields().size()) return places_.field(tensor, desc);
  return places_.alias(tensors_.at(tensor).value, desc);
}

memory ProgramBuilder::unblocked(Calls& calls, std::uint32_t tensor, const Descriptor& desc) {
  if (!in_blocks(tensor)) return value_as(tensor, desc);
  const Descriptor blocks = image(graph_.shape_of(tensor), tensor, Type::f32);
  const memory plain = places_.take({dims_of(blocks), Type::f32, memory::format_tag::nhwc});
  arrange(calls, value_as(tensor, blocks), plain);
  return places_.alias(plain, desc);
}

void ProgramBuilder::into_blocks(Calls& calls, std::uint32_t tensor, const memory& from, const memory& to) {
  const Descriptor blocks = image(graph_.shape_of(tensor), tensor, Type::f32);
  const Descriptor plain{dims_of(blocks), Type::f32, memory::format_tag::nhwc};
  arrange(calls, places_.alias(from, plain), places_.alias(to, blocks));
}

memory::desc ProgramBuilder::as_stored(Descriptor desc) const { return with_type(std::move(desc), stored_); }

memory ProgramBuilder::weights(std::size_t parameter, const Descriptor& desc) const {
  const std::uint64_t first = layout_.entries()[parameter].first;
  if (memory_.half != nullptr) return {as_stored(desc), engine_, memory_.half + first};
  return {as_stored(desc), engine_, memory_.parameters + first};
}

memory ProgramBuilder::bias(std::size_t parameter, const Descriptor& desc) const {
  return {desc, engine_, memory_.parameters + layout_.entries()[parameter].first};
}

memory ProgramBuilder::gradient(std::size_t parameter, const Descriptor& desc) const {
  return {desc, engine_, memory_.gradients + layout_.entries()[parameter].first};
}

memory ProgramBuilder::result(const memory& to) const {
  const Descriptor desc = to.get_desc();
  if (type_of(desc) == computed_ || type_of(desc) == Type::f32) return to;
  return places_.take(with_type(desc, Type::f32));
}

memory ProgramBuilder::operand(Calls& calls, const memory& from) const {
  memory wide = result(from);
  convert(calls, from, wide);
  return wide;
}

void ProgramBuilder::convert(Calls& calls, const memory& from, const memory& to) const {
  if (type_of(from) == type_of(to)) return;
  const bool widens = is_f32(to);
  calls.emplace_back(
      Elementwise{widens ? ElementwiseKind::widen : ElementwiseKind::round, to, from, {}, count_elements(from)});
}

memory ProgramBuilder::arranged(Calls& calls, const memory& from, const Descriptor& desc) {
  if (from.get_desc() == desc) return from;
  memory to = places_.take(desc);
  arrange(calls, from, to);
  return to;
}

void ProgramBuilder::arrange(Calls& calls, const memory& from, const memory& to) {
  if (from.get_desc() == to.get_desc() || arranges_weights(calls, from, to)) return;
  const dnnl::reorder::primitive_desc descriptor{engine_, from.get_desc(), engine_, to.get_desc(), attributes()};
  calls.emplace_back(
      BoundPrimitive{dnnl::reorder{descriptor},
                     {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {DNNL_ARG_SCRATCHPAD, scratch_for(descriptor)}}});
}

dnnl::primitive_attr ProgramBuilder::attributes(Activation activation) const {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (activation != Activation::none) {
    dnnl::post_ops after;
    append_activation(after, algorithm_of(activation));
    attributes.set_post_ops(after);
  }
  return attributes;
}

Gradients::Gradients(ProgramBuilder& builder)
    : builder_(builder), of_(builder.tensors().size()), pixels_(builder.tensors().size()) {
  for (const FlowTensor& tensor : builder.tensors()) missing_.push_back(tensor.readers);
}

Gradients::Place Gradients::take_place(std::uint64_t width) {
  return {builder_.places().take(builder_.matrix(builder_.rows(), width, builder_.stored())), false};
}

/// Notes that one more part of the gradient to `tensor` has been added. After the last part, multiplies by the slope of
/// the activation in the fused layer before, while the gradient is in the caches.
void Gradients::came(Calls& calls, std::uint32_t tensor) {
  if (const auto kept_back = std::exchange(pixels_[tensor], std::nullopt)) add_pixels(calls, tensor, *kept_back);
  if (--missing_[tensor] > 0 || of_[tensor]->masked) return;
  const Activation activation = builder_.activation_of(tensor);
  if (activation != Activation::none)
    add_activation_backward(calls, activation, of_[tensor]->value, builder_.tensor(tensor).value);
}

Gradients::Place Gradients::use(std::uint32_t tensor) {
  Place place = std::move(of_[tensor].value());
  of_[tensor].reset();
  return place;
}

void Gradients::contribute(Calls& calls, std::uint32_t tensor, Place part) {
  if (of_[tensor]) return add(calls, tensor, part.value);
  of_[tensor] = std::move(part);
  came(calls, tensor);
}

void Gradients::contribute_pixels(Calls& calls, std::uint32_t tensor, PixelGradient part) {
  if (!of_[tensor] && !pixels_[tensor] && missing_[tensor] > 1) {
    pixels_[tensor] = std::move(part);
    --missing_[tensor];
    return;
  }
  add_pixels(calls, tensor, part);
  came(calls, tensor);
}

void Gradients::add_pixels(Calls& calls, std::uint32_t tensor, const PixelGradient& part) {
  const bool adds = has(tensor);
  if (!adds) of_[tensor] = take_place(builder_.tensor(tensor).width);
  const memory& to = of_[tensor]->value;
  calls.emplace_back(OwnWork{{part.value, to}, AddPixels{part, to, adds, usable_threads()}});
}

void Gradients::add(Calls& calls, std::uint32_t tensor, const memory& part) {
  const memory& sum = of_[tensor]->value;
  const FlowTensor& of = builder_.tensor(tensor);
  const std::uint64_t count = builder_.rows() * of.width;
  if (misses_one_part(tensor) && !has_pixels(tensor) && builder_.activation_of(tensor) == Activation::relu) {
    --missing_[tensor];
    calls.emplace_back(Elementwise{ElementwiseKind::add_masked, sum, part, of.value, count});
    return;
  }
  calls.emplace_back(Elementwise{ElementwiseKind::add, sum, sum, part, count});
  came(calls, tensor);
}

void Gradients::copy(Calls& calls, std::uint32_t tensor, const memory& part) {
  const std::uint64_t width = builder_.tensor(tensor).width;
  of_[tensor] = take_place(width);
  calls.emplace_back(Elementwise{ElementwiseKind::copy, of_[tensor]->value, part, {}, builder_.rows() * width});
  came(calls, tensor);
}

}  // namespace troupe::cpu
