#include "devices/cpu/step_program.hpp"

#include <algorithm>

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
  make_activations(room);
  make_wide(room);
  make_forward(buckets);
  make_backward(graph, buckets);
  take_scratch(room);
}

void StepProgram::read_stages(const Graph& graph) {
  std::uint64_t inputs = graph.input().count_elements();
  std::size_t parameter = 0;
  for (std::size_t i = 0; i < graph.layers().size(); ++i) {
    const Layer& layer = graph.layers()[i];
    if (const auto* dense = std::get_if<Dense>(&layer.operation)) {
      stages_.push_back({layer.name, static_cast<std::uint32_t>(i), inputs, dense->units, false, parameter, {}, {}});
      parameter += 2;
    } else if (std::holds_alternative<Relu>(layer.operation)) {
      TROUPE_CHECK(!stages_.empty(), Code::unsupported, "graph ", graph.name(), ", layer ", layer.name,
                   ": the cpu device has no ReLU on the network's input; put a Dense layer before it");
      stages_.back().relu = true;
    }
    inputs = graph.output_of(i).count_elements();
  }
  loss_ = {rows_, graph.count_classes(), graph.dtype(), stages_.back().relu};
}

memory::desc StepProgram::matrix(std::uint64_t rows, std::uint64_t columns, Type type) const {
  return {{static_cast<memory::dim>(rows), static_cast<memory::dim>(columns)}, type, memory::format_tag::ab};
}

void StepProgram::make_activations(const StepProgram* room) {
  const auto take = [this](const memory::desc& desc, const memory* shared) {
    return shared != nullptr ? memory{desc, engine_, shared->get_data_handle()} : memory{desc, engine_};
  };
  std::uint64_t widest = 0;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    Stage& stage = stages_[i];
    // The first input is the batch, wherever the step's batch lies.
    stage.input = i ? stages_[i - 1].output : memory{matrix(rows_, stage.inputs, type_), engine_, nullptr};
    const bool last = i + 1 == stages_.size();
    stage.output = take(matrix(rows_, stage.units, last ? Type::f32 : type_),
                        room != nullptr ? &room->stages_[i].output : nullptr);
    if (!last) widest = std::max<std::uint64_t>(widest, stage.units);
  }
  logits_gradient_ =
      take(matrix(rows_, stages_.back().units, type_), room != nullptr ? &room->logits_gradient_ : nullptr);
  if (widest == 0) return;
  for (std::size_t i = 0; i < gradients_.size(); ++i)
    gradients_[i] = take(matrix(rows_, widest, type_), room != nullptr ? &room->gradients_[i] : nullptr);
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
    inputs = std::max(inputs, stage.inputs);
    weights = std::max(weights, stage.inputs * stage.units);
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
  calls.emplace_back(Convert{from, to, static_cast<std::uint64_t>(dims[0] * dims[1])});
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
  return {{prop_kind::forward_training, matrix(rows_, stage.inputs, computed_),
           matrix(stage.units, stage.inputs, computed_), bias, matrix(rows_, stage.units, output)},
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
  const memory::desc desc = matrix(stage.units, stage.inputs, type_);
  if (!memory_.bf16) return at(memory_.parameters, stage.parameter, desc);
  return {desc, engine_, memory_.bf16 + layout_.entries()[stage.parameter].first};
}

/// Where in `buckets` the stage's weight and bias are.
std::vector<std::uint32_t> StepProgram::buckets_of(const Stage& stage, const std::vector<Bucket>& buckets) const {
  std::vector<std::uint32_t> found;
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
    const memory input = operand(stage.input, wide_inputs_);
    const memory weights = operand(weights_of(stage), wide_weights_);
    const memory output = operand(stage.output, wide_outputs_);
    auto descriptor = forward_descriptor(stage, output.get_desc().data_type(), stage.relu);
    choose(descriptor, stage, "forward");
    convert(calls, stage.input, input);
    convert(calls, weights_of(stage), weights);
    calls.emplace_back(
        BoundPrimitive{inner_product_forward{descriptor},
                       {{DNNL_ARG_SRC, input},
                        {DNNL_ARG_WEIGHTS, weights},
                        {DNNL_ARG_BIAS, at(memory_.parameters, stage.parameter + 1, descriptor.bias_desc())},
                        {DNNL_ARG_DST, output},
                        {DNNL_ARG_SCRATCHPAD, scratch_for(descriptor)}}});
    convert(calls, output, stage.output);
  }
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

void StepProgram::make_backward(const Graph& graph, const std::vector<Bucket>& buckets) {
  check_cover(buckets);
  std::size_t index = stages_.size();
  memory gradient = logits_gradient_;
  for (const Bucket& bucket : buckets) {
    std::vector<Call>& calls = segments_.emplace_back();
    const std::uint32_t last = first_layer(graph, layout_, bucket);  // that the pass comes to
    while (index > 0 && stages_[index - 1].layer >= last) {
      const Stage& stage = stages_[--index];
      memory input_gradient;
      if (index > 0) {
        input_gradient = {matrix(rows_, stage.inputs, type_), engine_, gradients_[index % 2].get_data_handle()};
      }
      add_backward(calls, index, gradient, input_gradient);
      gradient = input_gradient;
    }
  }
}

void StepProgram::add_backward(std::vector<Call>& calls, std::size_t index, const memory& gradient,
                               const memory& input_gradient) {
  const Stage& stage = stages_[index];
  const auto hint = forward_descriptor(stage, computed_, false);
  const memory::desc input = matrix(rows_, stage.inputs, computed_);
  const memory::desc bias{{static_cast<memory::dim>(stage.units)}, Type::f32, memory::format_tag::a};
  const memory::desc output = matrix(rows_, stage.units, computed_);
  inner_product_backward_weights::primitive_desc weights{
      {input, matrix(stage.units, stage.inputs, Type::f32), bias, output}, attributes(false), engine_, hint};
  choose(weights, stage, "gradient of the weights");
  const memory layer_input = operand(stage.input, wide_inputs_);
  const memory output_gradient = operand(gradient, wide_outputs_);
  convert(calls, stage.input, layer_input);
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
      {input, matrix(stage.units, stage.inputs, computed_), output}, attributes(false), engine_, hint};
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
  if (stages_[index - 1].relu) {
    calls.emplace_back(
        Mask{input_gradient.get_data_handle(), stage.input.get_data_handle(), std::uint64_t{rows_} * stage.inputs});
  }
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
  stages_.front().input.set_data_handle(batch + batch_.inputs_offset());
  if (what.part == ProgramPart::forward) return call(forward_[what.segment]);
  const bool training = what.part == ProgramPart::forward_and_loss;
  if (training) call(forward_[what.segment]);
  for (std::size_t piece = 0; !training && piece < forward_.size(); ++piece) call(forward_[piece]);
  LossShape shape = loss_;
  shape.rows = what.rows;
  const StepSums sums = softmax_cross_entropy(shape, static_cast<const float*>(stages_.back().output.get_data_handle()),
                                              reinterpret_cast<const std::int32_t*>(batch + batch_.labels_offset()),
                                              training ? logits_gradient_.get_data_handle() : nullptr);
  StepSums& to = *what.sums;
  to.loss = (training ? 0 : to.loss) + sums.loss;
  to.correct = (training ? 0 : to.correct) + sums.correct;
  to.samples = (training ? 0 : to.samples) + sums.samples;
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
      continue;
    }
    if (const auto* convert = std::get_if<Convert>(&one)) {
      const void* from = convert->from.get_data_handle();
      void* to = convert->to.get_data_handle();
      if (convert->to.get_desc().data_type() == Type::f32) {
        kernels_.widen(static_cast<float*>(to), static_cast<const std::uint16_t*>(from), convert->count);
      } else {
        kernels_.round(static_cast<std::uint16_t*>(to), static_cast<const float*>(from), convert->count);
      }
      continue;
    }
    const Mask& mask = std::get<Mask>(one);
    if (type_ == Type::f32) {
      kernels_.mask_f32(static_cast<float*>(mask.gradient), static_cast<const float*>(mask.activation), mask.count);
    } else {
      kernels_.mask_bf16(static_cast<std::uint16_t*>(mask.gradient), static_cast<const std::uint16_t*>(mask.activation),
                         mask.count);
    }
  }
}

}  // namespace troupe::cpu
