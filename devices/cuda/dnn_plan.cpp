#include "devices/cuda/dnn_plan.hpp"

#include <algorithm>
#include <array>

namespace troupe::cuda {
namespace {

using dnn::Attribute;
using dnn::DescriptorType;
using dnn::ElementType;

}  // namespace

// ---- The graph ----

DnnGraph::DnnGraph(const dnn::Library& library, dnn::Handle handle, const DnnForm& form)
    : library_(library), handle_(handle), form_(form), made_(library) {
  const std::vector<dnn::Descriptor> all =
      std::visit([&](const auto& one) { return operations_of(one, made_); }, form_);
  graph_ = made_.make(DescriptorType::graph);
  made_.set_one(graph_, Attribute::graph_handle, ElementType::handle, handle_);
  made_.set(graph_, Attribute::graph_operations, ElementType::descriptor, all);
  made_.finalize(graph_);
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

std::vector<EngineChoice> DnnGraph::proposals(dnn::HeuristicsMode mode) const {
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
bool DnnGraph::may_take(dnn::Descriptor engine, Descriptors& made, bool tf32) const {
  using Note = dnn::NumericalNote;
  std::array<Note, dnn::kMostNotes> notes{};
  const auto count =
      made.get(engine, Attribute::engine_numerical_notes, ElementType::numerical_note, std::span<Note>{notes});
  return std::none_of(notes.begin(), notes.begin() + std::min(count, dnn::kMostNotes), [&](Note note) {
    const bool is_tensor_core = note == Note::tensor_core;
    return note == Note::nondeterministic || note == Note::reduced_precision_reduction || note == Note::winograd_4x4 ||
           note == Note::winograd_6x6 || note == Note::winograd_13x13 || (!tf32 && note == Note::down_convert_inputs) ||
           (!tf32 && type_of(form_) == Stored::f32 && is_tensor_core);
  });
}

std::optional<DnnPlan> DnnGraph::plan(const EngineChoice& choice, bool tf32) const {
  DnnPlan found{.graph = shared_from_this(),
                .made = std::make_unique<Descriptors>(library_),
                .choice = choice,
                .constants = constants_of(form_)};
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

dnn::Status execute(const dnn::Library& library, dnn::Handle handle, const DnnCall& call) {
  std::vector<std::int64_t> ids;
  std::vector<const void*> places;
  for (std::size_t id = 0; id < call.places.size(); ++id)
    if (call.places[id] != nullptr) ids.push_back(static_cast<std::int64_t>(id)), places.push_back(call.places[id]);
  for (const DnnConstant& constant : call.plan->constants)
    ids.push_back(constant.id), places.push_back(&constant.value);
  Descriptors made{library};
  const dnn::Descriptor pack = made.make(DescriptorType::variant_pack);
  made.set(pack, Attribute::pack_ids, ElementType::int64, ids);
  made.set(pack, Attribute::pack_pointers, ElementType::void_pointer, places);
  made.set_one(pack, Attribute::pack_workspace, ElementType::void_pointer, call.workspace);
  made.finalize(pack);
  return made.ok() ? library.execute(handle, call.plan->plan, pack) : made.status();
}

}  // namespace troupe::cuda
