#include "devices/cpu/step_program.hpp"

#include <algorithm>
#include <cmath>

#include "devices/cpu/layers/layers.hpp"
#include "runtime/model/dropout.hpp"
#include "runtime/model/layer_kinds.hpp"

namespace troupe::cpu {

using dnnl::memory;

namespace {

float weight_of(const troupe::Operation& loss) {
  return std::visit(
      []<class Kind>(const Kind& kind) {
        if constexpr (requires { kind.weight; }) return static_cast<float>(kind.weight);
        return 1.0F;
      },
      loss);
}

struct CallLoss {
  const Kernels& kernels;
  const LossShape& shape;
  const float* numbers;
  const std::byte* targets;
  void* gradient;

  StepSums operator()(const SoftmaxCrossEntropy&) const {
    return softmax_cross_entropy(kernels, shape, numbers, reinterpret_cast<const std::int32_t*>(targets), gradient);
  }
  StepSums operator()(const SmoothL1& loss) const {
    return smooth_l1(shape, static_cast<float>(loss.beta), numbers, targets, gradient);
  }
  StepSums operator()(const SigmoidCrossEntropy&) const {
    return sigmoid_cross_entropy(shape, numbers, targets, gradient);
  }
  StepSums operator()(const auto&) const { return {}; }  // not a loss
};

}  // namespace

/// What is needed only while a program is built.
struct StepProgram::Layers {
  ProgramBuilder& builder;
  std::vector<std::unique_ptr<LayerCalls>> calls{};  // by fused layer
  std::uint32_t recomputed_from = ~0U;               // the first layer of the range that was recomputed last
};

StepProgram::StepProgram(const Graph& graph, const Layout& layout, const BatchLayout& batch, std::uint32_t rows,
                         const std::vector<Bucket>& buckets, const ProgramMemory& memory, const ProgramOptions& options,
                         const StepProgram* room)
    : layout_(layout),
      batch_(batch),
      rows_(rows),
      memory_(memory),
      kernels_(best_kernels()),
      engine_(dnnl::engine::kind::cpu, 0),
      stream_(engine_),
      places_(engine_, room != nullptr ? &room->places_ : nullptr, options.shares) {
  const ThreadsInScope plan_for{options.threads};
  check_cover(buckets);
  ProgramBuilder builder{graph, layout, memory, rows, engine_, places_};
  Layers layers{builder};
  for (const FusedLayer& fused_layer : builder.fused_layers())
    layers.calls.push_back(make_layer_calls(builder, fused_layer));
  read_losses(builder);
  read_tokens(graph);
  make_forward(layers, buckets);
  make_evaluation(layers);
  make_backward(layers, buckets);
  statistics_ = builder.statistics();
  place_tensors();
  description_ = builder.description();
}

void StepProgram::read_losses(const ProgramBuilder& builder) {
  const Graph& graph = builder.graph();
  for (std::uint32_t l = 0; l < graph.layers().size(); ++l) {
    const troupe::Operation& operation = graph.layers()[l].operation;
    if (!kind_of(operation).is_loss) continue;
    Loss made{.layer = l,
              .operation = operation,
              .tensor = builder.tensor_of(graph.inputs_of(l)[0]),
              .shape = {},
              .logits = {},
              .gradient = {}};
    made.targets_offset = batch_.entries().at(graph.inputs_of(l)[1]).offset;
    const FlowTensor& logits = builder.tensor(made.tensor);
    if (!kind_of(operation).has_number_targets)
      made.labels = static_cast<std::uint32_t>(graph.shape_of(graph.inputs_of(l)[1]).count_elements());
    made.shape = {.rows = rows_ * made.labels,
                  .classes = static_cast<std::uint32_t>(logits.width / made.labels),
                  .dtype = graph.dtype(),
                  .after_relu = logits.readers == 1 && builder.activation_of(made.tensor) == Activation::relu,
                  .weight = weight_of(operation)};
    if (const auto* softmax = std::get_if<SoftmaxCrossEntropy>(&operation)) {
      made.shape.smoothing = static_cast<float>(softmax->smoothing);
      made.shape.ignore = softmax->ignore;
    }
    const auto rows_of = [&](ProgramBuilder::Type type) { return builder.matrix(rows_, logits.width, type); };
    const bool f32 = is_f32(logits.value);
    made.logits = f32 ? logits.value : places_.take(rows_of(ProgramBuilder::Type::f32));
    made.gradient = places_.take(rows_of(builder.stored()));
    losses_.push_back(std::move(made));
  }
}

void StepProgram::read_tokens(const Graph& graph) {
  for (std::size_t l = 0; l < graph.layers().size(); ++l) {
    const auto* embedding = std::get_if<Embedding>(&graph.layers()[l].operation);
    if (embedding == nullptr) continue;
    const std::uint32_t field = graph.inputs_of(l).front();
    tokens_.push_back(
        {batch_.entries().at(field).offset, graph.shape_of(field).count_elements(), embedding->vocabulary});
  }
}

void StepProgram::check_tokens(const RunProgram& what) const {
  for (const Tokens& tokens : tokens_) {
    const std::uint64_t count = what.rows * tokens.row;
    const auto* first = reinterpret_cast<const std::int32_t*>(what.batch + tokens.offset);
    const auto* wrong = std::find_if(first, first + count, [&](std::int32_t token) {
      return token >= 0 && std::uint32_t(token) >= tokens.vocabulary;
    });
    TROUPE_CHECK(wrong == first + count, Code::corrupt, "row ", (wrong - first) / tokens.row, " of a batch has token ",
                 *wrong, ", the model has a vocabulary of ", tokens.vocabulary, ": check the data set");
  }
}

/// The indices in `buckets` of the buckets with the fused layer's parameters.
std::vector<std::uint32_t> StepProgram::buckets_of(const FusedLayer& fused_layer,
                                                   const std::vector<Bucket>& buckets) const {
  std::vector<std::uint32_t> found;
  for (std::uint32_t b = 0; b < buckets.size(); ++b) {
    const std::uint64_t first = buckets[b].first_in_layout();
    for (std::size_t p = fused_layer.first_parameter; p < fused_layer.first_parameter + fused_layer.count_parameters;
         ++p) {
      const std::uint64_t at = layout_.entries()[p].first;
      if (at < first || at >= first + buckets[b].count) continue;
      found.push_back(b);
      break;
    }
  }
  return found;
}

void StepProgram::make_forward(Layers& layers, const std::vector<Bucket>& buckets) {
  std::vector<bool> read(buckets.size());
  for (std::size_t s = 0; s < layers.calls.size(); ++s) {
    std::vector<std::uint32_t> fresh = buckets_of(layers.builder.fused_layers()[s], buckets);
    std::erase_if(fresh, [&](std::uint32_t b) { return read[b]; });
    for (const std::uint32_t b : fresh) read[b] = true;
    if (forward_.empty() || !fresh.empty()) {
      forward_.emplace_back();
      first_read_.push_back(std::move(fresh));
    }
    if (const std::uint64_t gathered = layers.calls[s]->gathered().forward; gathered != 0) {
      layers.calls[s]->before_forward(forward_.back().calls);
      forward_.back().gathered_bytes = gathered;
      forward_.emplace_back();
      first_read_.emplace_back();
    }
    const FusedLayer& fused_layer = layers.builder.fused_layers()[s];
    LayerPass part{.layer = fused_layer.layer,
                   .backward = false,
                   .activation = fused_layer.activation,
                   .sums = fused_layer.adds,
                   .piece = forward_.size() - 1,
                   .first = forward_.back().calls.size()};
    layers.calls[s]->forward(forward_.back().calls);
    part.count = forward_.back().calls.size() - part.first;
    parts_.push_back(part);
  }
  for (const Loss& loss : losses_)
    layers.builder.convert(forward_.back().calls, layers.builder.tensor(loss.tensor).value, loss.logits);
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

void StepProgram::make_backward(Layers& layers, const std::vector<Bucket>& buckets) {
  const ProgramBuilder& builder = layers.builder;
  Gradients gradients{layers.builder};
  std::vector<Recomputation> made;
  std::size_t fused_layer = layers.calls.size(), loss = losses_.size();
  for (const Bucket& bucket : buckets) {
    backward_.emplace_back();
    const std::uint32_t last = first_layer(builder.graph(), layout_, bucket);  // that backward reaches
    for (auto layer = static_cast<std::uint32_t>(builder.graph().layers().size()); layer-- > last;) {
      if (loss > 0 && losses_[loss - 1].layer == layer) {
        const Loss& from = losses_[--loss];
        if (builder.tensor(from.tensor).trained)
          gradients.contribute(backward_.back().calls, from.tensor, {from.gradient, from.shape.after_relu});
      }
      if (fused_layer == 0 || builder.fused_layers()[fused_layer - 1].layer != layer) continue;
      --fused_layer;
      if (!builder.tensor(builder.fused_layers()[fused_layer].output).trained) continue;
      compute_again(layers, fused_layer, made);
      LayerCalls& one = *layers.calls[fused_layer];
      if (const std::uint64_t gathered = one.gathered().backward; gathered != 0) {
        one.before_backward(backward_.back().calls, gradients);
        backward_.back().gathered_bytes = gathered;
        backward_.emplace_back();
      }
      Calls& calls = backward_.back().calls;
      const FusedLayer& of = builder.fused_layers()[fused_layer];
      const std::uint32_t input = of.inputs[of.adds ? 1 : 0];
      LayerPass part{.layer = layer,
                     .backward = true,
                     .activation = of.activation,
                     .slope = gradients.misses_one_part(input) ? builder.activation_of(input) : Activation::none,
                     .sums = of.adds,
                     .adds = gradients.has(input) || gradients.has_pixels(input),
                     .piece = backward_.size() - 1,
                     .first = calls.size()};
      one.backward(calls, gradients);
      part.count = calls.size() - part.first;
      parts_.push_back(part);
    }
  }
  while (!made.empty()) {  // the last one first, so that indices of earlier ones in the same piece stay valid
    remove_unused(made.back());
    made.pop_back();
  }
}

void StepProgram::compute_again(Layers& layers, std::size_t fused_layer, std::vector<Recomputation>& made) {
  ProgramBuilder& builder = layers.builder;
  const auto& ranges = builder.graph().recomputed();
  const auto is_inside = [&](const LayerRange& range, std::size_t s) {
    return builder.fused_layers()[s].layer >= range.first && builder.fused_layers()[s].layer <= range.last;
  };
  const auto range = std::ranges::find_if(ranges, [&](const LayerRange& one) { return is_inside(one, fused_layer); });
  if (range == ranges.end() || layers.recomputed_from <= range->first) return;
  layers.recomputed_from = range->first;
  Calls& calls = backward_.back().calls;
  Recomputation again{.piece = backward_.size() - 1, .first = calls.size(), .first_place = places_.count()};
  builder.begin_recomputation(*range);
  for (std::size_t s = 0; s <= fused_layer; ++s) {
    if (!is_inside(*range, s)) continue;
    TROUPE_CHECK(layers.calls[s]->gathered().forward == 0, Code::unsupported, "layer ",
                 builder.graph().layers()[builder.fused_layers()[s].layer].name,
                 " is synchronized over ranks, which cannot be computed again; leave it out of train.recompute");
    layers.calls[s] = make_layer_calls(builder, builder.fused_layers()[s]);
    layers.calls[s]->forward(calls);
  }
  builder.end_recomputation();
  again.count = calls.size() - again.first;
  again.count_places = places_.count() - again.first_place;
  made.push_back(again);
}

// A range's last layers need not be computed again if their outputs were kept and nothing else of them is read.
void StepProgram::remove_unused(const Recomputation& made) {
  std::vector<bool> used(made.count_places);
  const auto use = [&](const Call& call) {
    cpu::for_memories(call, [&](const memory& one, bool) {
      const std::size_t place = places_.find(one);
      if (place - made.first_place < made.count_places) used[place - made.first_place] = true;
    });
  };
  for (std::size_t p = made.piece; p < backward_.size(); ++p)
    for (std::size_t c = p == made.piece ? made.first + made.count : 0; c < backward_[p].calls.size(); ++c)
      use(backward_[p].calls[c]);
  Calls& calls = backward_[made.piece].calls;
  for (std::size_t c = made.first + made.count; c-- > made.first;) {
    bool is_needed = false;
    cpu::for_memories(calls[c], [&](const memory& one, bool may_be_written) {
      const std::size_t place = places_.find(one);
      if (may_be_written && place - made.first_place < made.count_places)
        is_needed = is_needed || used[place - made.first_place];
    });
    if (is_needed) {
      use(calls[c]);
      continue;
    }
    calls.erase(calls.begin() + static_cast<std::ptrdiff_t>(c));
    for (LayerPass& part : parts_)
      if (part.backward && part.piece == made.piece && part.first > c) --part.first;
  }
}

void StepProgram::make_evaluation(Layers& layers) {
  if (std::ranges::none_of(layers.calls, [](const auto& fused_layer) { return fused_layer->has_evaluation(); })) return;
  Calls& calls = evaluation_.emplace();
  for (const auto& fused_layer : layers.calls) fused_layer->evaluation(calls);
  for (const Loss& loss : losses_) layers.builder.convert(calls, layers.builder.tensor(loss.tensor).value, loss.logits);
}

template <class BeginList, class NextCall, class Visit>
void StepProgram::for_memories(BeginList&& begin_list, NextCall&& next_call, Visit&& visit) const {
  const auto visit_calls = [&](const Calls& calls) {
    for (const Call& call : calls) {
      next_call();
      cpu::for_memories(call, [&](const memory& used, bool) { visit(used); });
    }
  };
  const auto visit_losses = [&](bool training) {
    next_call();
    for (const Loss& loss : losses_) {
      visit(loss.logits);
      if (training) visit(loss.gradient);
    }
  };
  begin_list();
  for (const Piece& piece : forward_) visit_calls(piece.calls);
  visit_losses(true);
  for (const BatchStatistic& statistic : statistics_) visit(statistic.value);
  for (const Piece& piece : backward_) visit_calls(piece.calls);
  if (!evaluation_) return;
  begin_list();
  visit_calls(*evaluation_);
  visit_losses(false);
}

void StepProgram::place_tensors() {
  for_memories([&] { places_.begin_list(); }, [&] { places_.next_call(); },
               [&](const memory& used) { places_.touch(used); });
  places_.assign_offsets();
  for_memories([] {}, [] {}, [&](const memory& used) { places_.set_address(used); });
}

// A running value that becomes infinite or NaN would remain so. Therefore such a batch leaves the running value as it
// is.
void StepProgram::give_statistics(std::uint64_t samples) const {
  for (const BatchStatistic& statistic : statistics_) {
    const Layout::Entry& entry = layout_.entries()[statistic.parameter];
    const auto* value = static_cast<const float*>(statistic.value.get_data_handle());
    for (std::uint64_t i = 0; i < entry.count; ++i) {
      const float batch = statistic.factor * value[i];
      memory_.gradients[entry.first + i] =
          -static_cast<float>(samples) * (std::isfinite(batch) ? batch : memory_.parameters[entry.first + i]);
    }
  }
}

void StepProgram::run(const RunProgram& what) {
  const auto call = [this](const Piece& piece) { execute(piece.calls, stream_, kernels_); };
  if (what.part == ProgramPart::backward) return call(backward_[what.segment]);
  if (what.part == ProgramPart::products) {
    for (const auto* pieces : {&forward_, &backward_})
      for (const Piece& piece : *pieces) execute_products(piece.calls, stream_, kernels_);
    return;
  }
  if (what.part == ProgramPart::no_rows) return clear(*what.sums);
  auto* batch = const_cast<std::byte*>(what.batch);  // oneDNN has no read-only handles
  for (std::size_t f = 0; f < batch_.entries().size(); ++f) {
    const BatchLayout::Entry& entry = batch_.entries()[f];
    const bool hidden = what.part == ProgramPart::evaluate && entry.field.name == kSampleKey;  // not drawn
    places_.set_field(f, hidden ? nullptr : batch + entry.offset);
  }
  if (what.segment == 0) check_tokens(what);
  if (what.part == ProgramPart::forward) return call(forward_[what.segment]);
  const bool training = what.part == ProgramPart::forward_and_loss;
  if (training) call(forward_[what.segment]);
  if (!training && evaluation_) execute(*evaluation_, stream_, kernels_);
  for (std::size_t piece = 0; !training && !evaluation_ && piece < forward_.size(); ++piece) call(forward_[piece]);
  const StepSums sums = call_losses(what, training);
  if (training) give_statistics(sums.samples);
  StepSums& to = *what.sums;
  to.loss = (training ? 0 : to.loss) + sums.loss;
  to.correct = (training ? 0 : to.correct) + sums.correct;
  to.samples = (training ? 0 : to.samples) + sums.samples;
}

void StepProgram::run(const LayerPass& part) const {
  const Calls& calls = (part.backward ? backward_ : forward_)[part.piece].calls;
  execute(std::span{calls}.subspan(part.first, part.count), stream_, kernels_);
}

StepSums StepProgram::call_losses(const RunProgram& what, bool training) const {
  StepSums sums;
  for (const Loss& loss : losses_) {
    LossShape shape = loss.shape;
    shape.rows = what.rows * loss.labels;
    const StepSums found =
        std::visit(CallLoss{kernels_, shape, static_cast<const float*>(loss.logits.get_data_handle()),
                            what.batch + loss.targets_offset, training ? loss.gradient.get_data_handle() : nullptr},
                   loss.operation);
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

}  // namespace troupe::cpu
