#include "devices/cpu/step_program.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

namespace troupe::cpu {

using dnnl::algorithm;
using dnnl::inner_product_backward_data;
using dnnl::inner_product_backward_weights;
using dnnl::inner_product_forward;
using dnnl::memory;
using dnnl::prop_kind;

StepProgram::StepProgram(const Graph& graph, const Layout& layout, const BatchLayout& batch, std::uint32_t rows,
                         const std::vector<Bucket>& buckets, const ProgramMemory& memory, std::uint32_t threads,
                         const StepProgram* room)
    : layout_(layout),
      batch_(batch),
      rows_(rows),
      memory_(memory),
      type_(graph.dtype() == DType::bf16 ? Type::bf16 : Type::f32),
      computed_(type_ == Type::bf16 && onednn_has_bf16() ? Type::bf16 : Type::f32),
      kernels_(best_kernels()),
      engine_(dnnl::engine::kind::cpu, 0),
      stream_(engine_) {
  const ThreadsInScope plan_for{threads};
  read_stages(graph);
  read_losses(graph);
  make_activations(graph, room);
  make_wide(room);
  make_forward(buckets);
  make_backward(graph, buckets, room);
  take_scratch(room);
}

void StepProgram::read_stages(const Graph& graph) {
  std::vector<std::size_t> first_parameter(graph.layers().size());
  for (std::size_t p = graph.parameters().size(); p-- > 0;) first_parameter[graph.parameters()[p].layer] = p;
  std::vector<bool> fused(graph.layers().size());
  for (std::uint32_t l = 0; l < graph.layers().size(); ++l) {
    const Layer& layer = graph.layers()[l];
    if (fused[l] || std::holds_alternative<SoftmaxCrossEntropy>(layer.operation)) continue;
    Stage stage{.name = layer.name, .layer = l, .inputs = graph.inputs_of(l), .output = graph.output_tensor(l)};
    if (const auto* dense = std::get_if<Dense>(&layer.operation)) {
      stage.width = graph.shape_of(stage.inputs.front()).count_elements();
      stage.units = dense->units;
      stage.parameter = first_parameter[l];
      for (std::uint32_t r = l + 1; graph.count_readers(stage.output) == 1 && r < graph.layers().size(); ++r) {
        if (!std::holds_alternative<Relu>(graph.layers()[r].operation) || graph.inputs_of(r).front() != stage.output)
          continue;
        stage.relu = fused[r] = true;
        stage.output = graph.output_tensor(r);
        break;
      }
    } else {
      stage.kind = std::holds_alternative<Relu>(layer.operation) ? StageKind::relu : StageKind::sum;
    }
    stages_.push_back(std::move(stage));
  }
}

void StepProgram::read_losses(const Graph& graph) {
  for (std::uint32_t l = 0; l < graph.layers().size(); ++l) {
    const auto* loss = std::get_if<SoftmaxCrossEntropy>(&graph.layers()[l].operation);
    if (loss == nullptr) continue;
    Loss made{.layer = l, .tensor = graph.inputs_of(l)[0], .shape = {}, .logits = {}, .gradient = {}};
    made.labels_offset = batch_.entries().at(graph.inputs_of(l)[1]).offset;
    const auto rectified = [&](const Stage& stage) { return stage.output == made.tensor && stage.relu; };
    made.shape = {
        .rows = rows_,
        .classes = static_cast<std::uint32_t>(graph.output_of(l).count_elements()),
        .dtype = graph.dtype(),
        .after_relu = graph.count_readers(made.tensor) == 1 && std::any_of(stages_.begin(), stages_.end(), rectified),
        .weight = static_cast<float>(loss->weight)};
    losses_.push_back(std::move(made));
  }
}

memory::desc StepProgram::matrix(std::uint64_t rows, std::uint64_t columns, Type type) const {
  return {{static_cast<memory::dim>(rows), static_cast<memory::dim>(columns)}, type, memory::format_tag::ab};
}

memory StepProgram::take(const memory::desc& desc, const memory* shared) const {
  return shared != nullptr ? memory{desc, engine_, shared->get_data_handle()} : memory{desc, engine_};
}

void StepProgram::make_activations(const Graph& graph, const StepProgram* room) {
  const std::size_t fields = graph.fields().size();
  for (std::uint32_t t = 0; t < fields + graph.layers().size(); ++t) {
    tensors_.push_back({graph.shape_of(t).count_elements(), graph.is_trained(t), {}});
    const bool numbers = t < fields && graph.fields()[t].dtype != DType::i32;
    if (numbers) tensors_[t].value = memory{matrix(rows_, tensors_[t].width, type_), engine_, nullptr};
  }
  // A product gives its loss f32, whatever else is stored.
  const auto only_a_loss = [&](const Stage& stage) {
    return stage.kind == StageKind::product && graph.count_readers(stage.output) == 1 &&
           std::any_of(losses_.begin(), losses_.end(), [&](const Loss& loss) { return loss.tensor == stage.output; });
  };
  for (const Stage& stage : stages_) {
    Tensor& output = tensors_[stage.output];
    output.value = take(matrix(rows_, output.width, only_a_loss(stage) ? Type::f32 : type_),
                        room != nullptr ? &room->tensors_[stage.output].value : nullptr);
  }
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    Loss& loss = losses_[i];
    const Loss* const shared = room != nullptr ? &room->losses_[i] : nullptr;
    const memory& stored = tensors_[loss.tensor].value;
    const auto desc = matrix(rows_, loss.shape.classes, Type::f32);
    loss.logits =
        stored.get_desc().data_type() == Type::f32 ? stored : take(desc, shared != nullptr ? &shared->logits : nullptr);
    loss.gradient = take(matrix(rows_, loss.shape.classes, type_), shared != nullptr ? &shared->gradient : nullptr);
  }
}

void StepProgram::make_wide(const StepProgram* room) {
  if (type_ == computed_) return;
  if (room != nullptr) {
    wide_inputs_ = room->wide_inputs_;
    wide_weights_ = room->wide_weights_;
    wide_outputs_ = room->wide_outputs_;
    return;
  }
  std::uint64_t inputs = 0, weights = 0, outputs = 0;
  for (const Stage& stage : stages_) {
    inputs = std::max(inputs, stage.width);
    weights = std::max(weights, stage.width * stage.units);
    outputs = std::max<std::uint64_t>(outputs, stage.units);
  }
  wide_inputs_ = {matrix(rows_, inputs, Type::f32), engine_};
  wide_weights_ = {matrix(1, weights, Type::f32), engine_};
  wide_outputs_ = {matrix(rows_, outputs, Type::f32), engine_};
}

memory StepProgram::operand(const memory& stored, const memory& place) const {
  const memory::desc desc = stored.get_desc();
  if (desc.data_type() == computed_ || desc.data_type() == Type::f32) return stored;
  const auto dims = desc.dims();
  return {matrix(static_cast<std::uint64_t>(dims[0]), static_cast<std::uint64_t>(dims[1]), Type::f32), engine_,
          place.get_data_handle()};
}

void StepProgram::convert(std::vector<Call>& calls, const memory& from, const memory& to) const {
  if (from.get_desc().data_type() == to.get_desc().data_type()) return;
  const auto dims = from.get_desc().dims();
  const bool widens = to.get_desc().data_type() == Type::f32;
  calls.emplace_back(Elementwise{widens ? ElementwiseKind::widen : ElementwiseKind::round,
                                 to,
                                 from,
                                 {},
                                 static_cast<std::uint64_t>(dims[0] * dims[1])});
}

dnnl::primitive_attr StepProgram::attributes(bool relu) const {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (relu) {
    dnnl::post_ops after;
    after.append_eltwise(1.0F, algorithm::eltwise_relu, 0, 0);
    attributes.set_post_ops(after);
  }
  return attributes;
}

inner_product_forward::primitive_desc StepProgram::forward_descriptor(const Stage& stage, Type output, bool relu) {
  const memory::desc bias{{static_cast<memory::dim>(stage.units)}, Type::f32, memory::format_tag::a};
  return {{prop_kind::forward_training, matrix(rows_, stage.width, computed_),
           matrix(stage.units, stage.width, computed_), bias, matrix(rows_, stage.units, output)},
          attributes(relu),
          engine_};
}

template <class Descriptor>
void StepProgram::choose(Descriptor& descriptor, const Stage& stage, const char* pass) {
  const std::string what = text("layer ", stage.name, ", ", pass);
  choose_implementation(descriptor, what);
  description_ += text(what, ": ", descriptor.impl_info_str(), '\n');
}

template <class Descriptor>
memory StepProgram::scratch_for(const Descriptor& descriptor) {
  return scratchpads_.emplace_back(descriptor.scratchpad_desc(), engine_, nullptr);
}

memory StepProgram::at(float* flat, std::size_t parameter, const memory::desc& desc) const {
  return {desc, engine_, flat + layout_.entries()[parameter].first};
}

memory StepProgram::weights_of(const Stage& stage) const {
  const memory::desc desc = matrix(stage.units, stage.width, type_);
  if (!memory_.bf16) return at(memory_.parameters, stage.parameter, desc);
  return {desc, engine_, memory_.bf16 + layout_.entries()[stage.parameter].first};
}

/// Where in `buckets` the stage's weight and bias are.
std::vector<std::uint32_t> StepProgram::buckets_of(const Stage& stage, const std::vector<Bucket>& buckets) const {
  std::vector<std::uint32_t> found;
  if (stage.kind != StageKind::product) return found;
  for (std::uint32_t b = 0; b < buckets.size(); ++b) {
    const std::uint64_t first = buckets[b].first_in_layout();
    const auto has = [&](std::size_t parameter) {
      const std::uint64_t at = layout_.entries()[parameter].first;
      return at >= first && at < first + buckets[b].count;
    };
    if (has(stage.parameter) || has(stage.parameter + 1)) found.push_back(b);
  }
  return found;
}

void StepProgram::make_forward(const std::vector<Bucket>& buckets) {
  std::vector<bool> read(buckets.size());
  for (const Stage& stage : stages_) {
    std::vector<std::uint32_t> fresh = buckets_of(stage, buckets);
    std::erase_if(fresh, [&](std::uint32_t b) { return read[b]; });
    for (const std::uint32_t b : fresh) read[b] = true;
    if (forward_.empty() || !fresh.empty()) {
      forward_.emplace_back();
      first_read_.push_back(std::move(fresh));
    }
    std::vector<Call>& calls = forward_.back();
    const Tensor& output = tensors_[stage.output];
    const auto input = [&](std::size_t i) { return tensors_[stage.inputs[i]].value; };
    const std::uint64_t count = rows_ * output.width;
    switch (stage.kind) {
      case StageKind::product: add_product(calls, stage); break;
      case StageKind::relu:
        calls.emplace_back(Elementwise{ElementwiseKind::relu, output.value, input(0), {}, count});
        break;
      case StageKind::sum:
        calls.emplace_back(Elementwise{ElementwiseKind::add, output.value, input(0), input(1), count});
        for (std::size_t i = 2; i < stage.inputs.size(); ++i)
          calls.emplace_back(Elementwise{ElementwiseKind::add, output.value, output.value, input(i), count});
        break;
    }
  }
  for (const Loss& loss : losses_) convert(forward_.back(), tensors_[loss.tensor].value, loss.logits);
}

void StepProgram::add_product(std::vector<Call>& calls, const Stage& stage) {
  const memory &stored_input = tensors_[stage.inputs.front()].value, &stored_output = tensors_[stage.output].value;
  const memory input = operand(stored_input, wide_inputs_);
  const memory weights = operand(weights_of(stage), wide_weights_);
  const memory output = operand(stored_output, wide_outputs_);
  auto descriptor = forward_descriptor(stage, output.get_desc().data_type(), stage.relu);
  choose(descriptor, stage, "forward");
  convert(calls, stored_input, input);
  convert(calls, weights_of(stage), weights);
  calls.emplace_back(
      BoundPrimitive{inner_product_forward{descriptor},
                     {{DNNL_ARG_SRC, input},
                      {DNNL_ARG_WEIGHTS, weights},
                      {DNNL_ARG_BIAS, at(memory_.parameters, stage.parameter + 1, descriptor.bias_desc())},
                      {DNNL_ARG_DST, output},
                      {DNNL_ARG_SCRATCHPAD, scratch_for(descriptor)}}});
  convert(calls, output, stored_output);
}

void StepProgram::check_cover(std::vector<Bucket> buckets) const {
  std::sort(buckets.begin(), buckets.end(),
            [](const Bucket& a, const Bucket& b) { return a.first_in_layout() < b.first_in_layout(); });
  const auto starts_parameter = [&](std::uint64_t element) {
    const auto& entries = layout_.entries();
    return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == element; });
  };
  std::uint64_t end = 0;
  for (const Bucket& bucket : buckets) {
    const std::uint64_t first = bucket.first_in_layout();
    TROUPE_CHECK(first == end && bucket.count > 0 && starts_parameter(first), Code::invalid, "bucket ", bucket.index,
                 " of group ", bucket.group.value, " covers elements ", first, " to ", first + bucket.count,
                 " of the layout, which are not whole parameters from ", end, " on");
    end += bucket.count;
  }
  TROUPE_CHECK(end == layout_.count_elements(), Code::invalid, "the buckets cover ", end, " of ",
               layout_.count_elements(), " elements");
}

/// Where the gradients to tensors lie while the backward pass is laid out. A place is free for another tensor as soon
/// as the gradient in it has been used.
struct StepProgram::Gradients {
  struct Place {
    memory value;
    std::optional<std::size_t> slot{};  // of the program's gradients_; none: a loss's own
    bool masked = false;                // zero where the tensor's ReLU cut off
  };
  StepProgram& program;
  const StepProgram* room;
  std::uint64_t widest = 0;  // of the tensors that need a place
  std::vector<std::optional<Place>> of{};
  std::vector<std::uint32_t> missing{};  // by tensor: parts that are not there yet, one of each reader
  std::vector<bool> taken{};

  Place take_place(std::uint64_t width) {
    auto& slots = program.gradients_;
    const auto slot = static_cast<std::size_t>(std::find(taken.begin(), taken.end(), false) - taken.begin());
    if (slot == taken.size()) {
      taken.push_back(false);
      slots.push_back(program.take(program.matrix(program.rows_, widest, program.type_),
                                   room != nullptr ? &room->gradients_[slot] : nullptr));
    }
    taken[slot] = true;
    return {{program.matrix(program.rows_, width, program.type_), program.engine_, slots[slot].get_data_handle()},
            slot,
            false};
  }
  void give_back(const Place& place) {
    if (place.slot) taken[*place.slot] = false;
  }
  /// One more part of the gradient to `tensor` is there. With the last one it is cut off where the ReLU behind the
  /// product did so, while it is in the caches.
  void came(std::vector<Call>& calls, std::uint32_t tensor) {
    if (--missing[tensor] > 0 || of[tensor]->masked) return;
    const auto is_cut = [&](const Stage& stage) { return stage.output == tensor && stage.relu; };
    if (std::none_of(program.stages_.begin(), program.stages_.end(), is_cut)) return;
    const Tensor& cut = program.tensors_[tensor];
    calls.emplace_back(Elementwise{ElementwiseKind::mask, of[tensor]->value, cut.value, {}, program.rows_ * cut.width});
  }
  /// The gradient to `tensor`, of which all parts are there.
  Place use(std::uint32_t tensor) {
    Place place = std::move(of[tensor].value());
    of[tensor].reset();
    return place;
  }
  /// Adds `part`, which is given up.
  void contribute(std::vector<Call>& calls, std::uint32_t tensor, Place part) {
    if (of[tensor]) {
      give_back(part);
      return add(calls, tensor, part.value);
    }
    of[tensor] = std::move(part);
    came(calls, tensor);
  }
  void add(std::vector<Call>& calls, std::uint32_t tensor, const memory& part) {
    const memory& sum = of[tensor]->value;
    calls.emplace_back(
        Elementwise{ElementwiseKind::add, sum, sum, part, program.rows_ * program.tensors_[tensor].width});
    came(calls, tensor);
  }
  void copy(std::vector<Call>& calls, std::uint32_t tensor, const memory& part) {
    const std::uint64_t width = program.tensors_[tensor].width;
    of[tensor] = take_place(width);
    calls.emplace_back(Elementwise{ElementwiseKind::copy, of[tensor]->value, part, {}, program.rows_ * width});
    came(calls, tensor);
  }
};

void StepProgram::make_backward(const Graph& graph, const std::vector<Bucket>& buckets, const StepProgram* room) {
  check_cover(buckets);
  Gradients gradients{.program = *this, .room = room};
  gradients.of.resize(tensors_.size());
  for (std::uint32_t t = 0; t < tensors_.size(); ++t) gradients.missing.push_back(graph.count_readers(t));
  for (const Stage& stage : stages_) {
    for (const std::uint32_t input : stage.inputs)
      if (tensors_[input].trained) gradients.widest = std::max(gradients.widest, tensors_[input].width);
  }
  std::size_t stage = stages_.size(), loss = losses_.size();
  for (const Bucket& bucket : buckets) {
    std::vector<Call>& calls = segments_.emplace_back();
    const std::uint32_t last = first_layer(graph, layout_, bucket);  // that the pass comes to
    for (std::uint32_t layer = static_cast<std::uint32_t>(graph.layers().size()); layer-- > last;) {
      if (loss > 0 && losses_[loss - 1].layer == layer) {
        const Loss& from = losses_[--loss];
        if (tensors_[from.tensor].trained)
          gradients.contribute(calls, from.tensor, {from.gradient, {}, from.shape.after_relu});
      }
      if (stage > 0 && stages_[stage - 1].layer == layer) add_backward(calls, stages_[--stage], gradients);
    }
  }
}

void StepProgram::add_backward(std::vector<Call>& calls, const Stage& stage, Gradients& gradients) {
  const Tensor& output = tensors_[stage.output];
  if (!output.trained) return;
  Gradients::Place gradient = gradients.use(stage.output);
  const std::uint32_t input = stage.inputs.front();
  if (stage.kind == StageKind::relu) {
    calls.emplace_back(Elementwise{ElementwiseKind::mask, gradient.value, output.value, {}, rows_ * output.width});
    return gradients.contribute(calls, input, std::move(gradient));
  }
  if (stage.kind == StageKind::product) {
    Gradients::Place input_gradient;
    if (tensors_[input].trained) input_gradient = gradients.take_place(stage.width);
    add_product_backward(calls, stage, gradient.value, input_gradient.value);
    gradients.give_back(gradient);
    if (tensors_[input].trained) gradients.contribute(calls, input, std::move(input_gradient));
    return;
  }
  // Every summand has the sum's gradient; the last one that has none yet takes its place over.
  const auto lacks = [&](std::uint32_t tensor) { return tensors_[tensor].trained && !gradients.of[tensor]; };
  bool given = false;
  for (auto at = stage.inputs.begin(); at != stage.inputs.end(); ++at) {
    if (!tensors_[*at].trained) continue;
    if (!lacks(*at)) {
      gradients.add(calls, *at, gradient.value);
    } else if (std::any_of(at + 1, stage.inputs.end(), [&](std::uint32_t t) { return tensors_[t].trained; })) {
      gradients.copy(calls, *at, gradient.value);
    } else {
      gradient.masked = false;
      gradients.contribute(calls, *at, gradient);
      given = true;
    }
  }
  if (!given) gradients.give_back(gradient);
}

void StepProgram::add_product_backward(std::vector<Call>& calls, const Stage& stage, const memory& gradient,
                                       const memory& input_gradient) {
  const memory& stored_input = tensors_[stage.inputs.front()].value;
  const auto hint = forward_descriptor(stage, computed_, false);
  const memory::desc input = matrix(rows_, stage.width, computed_);
  const memory::desc bias{{static_cast<memory::dim>(stage.units)}, Type::f32, memory::format_tag::a};
  const memory::desc output = matrix(rows_, stage.units, computed_);
  inner_product_backward_weights::primitive_desc weights{
      {input, matrix(stage.units, stage.width, Type::f32), bias, output}, attributes(false), engine_, hint};
  choose(weights, stage, "gradient of the weights");
  const memory layer_input = operand(stored_input, wide_inputs_);
  const memory output_gradient = operand(gradient, wide_outputs_);
  convert(calls, stored_input, layer_input);
  convert(calls, gradient, output_gradient);
  calls.emplace_back(
      BoundPrimitive{inner_product_backward_weights{weights},
                     {{DNNL_ARG_SRC, layer_input},
                      {DNNL_ARG_DIFF_DST, output_gradient},
                      {DNNL_ARG_DIFF_WEIGHTS, at(memory_.gradients, stage.parameter, weights.diff_weights_desc())},
                      {DNNL_ARG_DIFF_BIAS, at(memory_.gradients, stage.parameter + 1, weights.diff_bias_desc())},
                      {DNNL_ARG_SCRATCHPAD, scratch_for(weights)}}});
  if (!input_gradient) return;
  inner_product_backward_data::primitive_desc data{
      {input, matrix(stage.units, stage.width, computed_), output}, attributes(false), engine_, hint};
  choose(data, stage, "gradient of the input");
  const memory layer_weights = operand(weights_of(stage), wide_weights_);
  const memory wide_gradient = operand(input_gradient, wide_inputs_);  // the layer's input is no longer needed there
  convert(calls, weights_of(stage), layer_weights);
  calls.emplace_back(BoundPrimitive{inner_product_backward_data{data},
                                    {{DNNL_ARG_DIFF_DST, output_gradient},
                                     {DNNL_ARG_WEIGHTS, layer_weights},
                                     {DNNL_ARG_DIFF_SRC, wide_gradient},
                                     {DNNL_ARG_SCRATCHPAD, scratch_for(data)}}});
  convert(calls, wide_gradient, input_gradient);
}

void StepProgram::take_scratch(const StepProgram* room) {
  std::size_t largest = 0;
  for (const memory& scratchpad : scratchpads_) largest = std::max(largest, scratchpad.get_desc().get_size());
  if (largest == 0) return;
  const bool serves = room != nullptr && room->scratch_ && room->scratch_.get_desc().get_size() >= largest;
  if (!serves) scratch_ = memory{{{static_cast<memory::dim>(largest)}, Type::u8, memory::format_tag::a}, engine_};
  void* const first = (serves ? room->scratch_ : scratch_).get_data_handle();
  for (const memory& scratchpad : scratchpads_) scratchpad.set_data_handle(first);
}

void StepProgram::run(const RunProgram& what) {
  if (what.part == ProgramPart::backward) return call(segments_[what.segment]);
  if (what.part == ProgramPart::products) return call_products();
  if (what.part == ProgramPart::no_rows) return clear(*what.sums);
  auto* batch = const_cast<std::byte*>(what.batch);  // oneDNN has no read-only handles
  for (std::size_t f = 0; f < batch_.entries().size(); ++f)
    if (tensors_[f].value) tensors_[f].value.set_data_handle(batch + batch_.entries()[f].offset);
  if (what.part == ProgramPart::forward) return call(forward_[what.segment]);
  const bool training = what.part == ProgramPart::forward_and_loss;
  if (training) call(forward_[what.segment]);
  for (std::size_t piece = 0; !training && piece < forward_.size(); ++piece) call(forward_[piece]);
  const StepSums sums = call_losses(what, training);
  StepSums& to = *what.sums;
  to.loss = (training ? 0 : to.loss) + sums.loss;
  to.correct = (training ? 0 : to.correct) + sums.correct;
  to.samples = (training ? 0 : to.samples) + sums.samples;
}

StepSums StepProgram::call_losses(const RunProgram& what, bool training) const {
  StepSums sums;
  for (const Loss& loss : losses_) {
    LossShape shape = loss.shape;
    shape.rows = what.rows;
    const StepSums found = softmax_cross_entropy(shape, static_cast<const float*>(loss.logits.get_data_handle()),
                                                 reinterpret_cast<const std::int32_t*>(what.batch + loss.labels_offset),
                                                 training ? loss.gradient.get_data_handle() : nullptr);
    sums.loss += found.loss;
    sums.correct = found.correct;
    sums.samples = found.samples;
  }
  return sums;
}

void StepProgram::clear(StepSums& sums) const {
  std::fill_n(memory_.gradients, layout_.count_elements(), 0.0F);
  sums.loss = 0;
  sums.correct = sums.samples = 0;
}

void StepProgram::call_products() const {
  const auto execute = [this](const std::vector<Call>& calls) {
    for (const Call& one : calls)
      if (const auto* primitive = std::get_if<BoundPrimitive>(&one)) primitive->execute(stream_);
  };
  for (const auto& piece : forward_) execute(piece);
  for (const auto& segment : segments_) execute(segment);
}

void StepProgram::call(const std::vector<Call>& calls) const {
  for (const Call& one : calls) {
    if (const auto* primitive = std::get_if<BoundPrimitive>(&one)) {
      primitive->execute(stream_);
    } else {
      call(std::get<Elementwise>(one));
    }
  }
}

void StepProgram::call(const Elementwise& loop) const {
  using Half = std::uint16_t;
  void* const to = loop.to.get_data_handle();
  const void* const from = loop.from.get_data_handle();
  const bool f32 = type_ == Type::f32;
  switch (loop.kind) {
    case ElementwiseKind::widen:
      return kernels_.widen(static_cast<float*>(to), static_cast<const Half*>(from), loop.count);
    case ElementwiseKind::round:
      return kernels_.round(static_cast<Half*>(to), static_cast<const float*>(from), loop.count);
    case ElementwiseKind::copy: std::memcpy(to, from, loop.count * (f32 ? sizeof(float) : sizeof(Half))); return;
    case ElementwiseKind::relu:
      if (f32) return kernels_.relu_f32(static_cast<float*>(to), static_cast<const float*>(from), loop.count);
      return kernels_.relu_bf16(static_cast<Half*>(to), static_cast<const Half*>(from), loop.count);
    case ElementwiseKind::mask:
      if (f32) return kernels_.mask_f32(static_cast<float*>(to), static_cast<const float*>(from), loop.count);
      return kernels_.mask_bf16(static_cast<Half*>(to), static_cast<const Half*>(from), loop.count);
    case ElementwiseKind::add: break;
  }
  const void* const other = loop.other.get_data_handle();
  if (f32) {
    return kernels_.add(static_cast<float*>(to), static_cast<const float*>(from), static_cast<const float*>(other),
                        loop.count);
  }
  kernels_.add_bf16(static_cast<Half*>(to), static_cast<const Half*>(from), static_cast<const Half*>(other),
                    loop.count);
}

}  // namespace troupe::cpu
