// What the stand-in of cuDNN exports.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "tests/support/cuda_host/cudnn/descriptors.hpp"

namespace troupe::cuda::dnn {
namespace host {
namespace {

using cuda::host::Entry;
using cuda::host::Needs;
using cuda::host::process;
using cuda::host::reports;

/// What a call ends with that may not go on, or success.
Status refusal_of(cuda::Result result) {
  const auto refused = static_cast<unsigned>(result);
  if (refused > cuda::host::kCudnnFault) return Status{refused - cuda::host::kCudnnFault};
  return refused == 0 ? Status::success : Status::not_initialized;
}

Status misuse(const PlacePtr& place, const std::string& text) {
  reports().add("wrong graph", place->text() + " is given " + text);
  return Status::bad_param;
}

/// Gives `values` to a caller that has room for `most`.
template <class T>
Status give(const std::vector<T>& values, std::int64_t most, std::int64_t* count, void* elements) {
  const auto size = static_cast<std::int64_t>(values.size());
  if (count != nullptr) *count = most == 0 ? size : std::min(size, most);
  if (most != 0 && size != 0)
    std::memcpy(elements, values.data(), static_cast<std::size_t>(std::min(size, most)) * sizeof(T));
  return Status::success;
}

/// Fills the caller's own descriptors.
template <class Fill>
Status give_descriptors(std::size_t size, DescriptorType type, std::int64_t most, std::int64_t* count, void* elements,
                        const PlacePtr& place, Fill&& fill) {
  const auto given = std::min<std::size_t>(size, static_cast<std::size_t>(most));
  for (std::size_t i = 0; i < given; ++i) {
    const auto one = known().descriptors.find(static_cast<Descriptor*>(elements)[i], place);
    if (one == nullptr) return Status::bad_param;
    if (one->type != type || one->is_finalized) return misuse(place, "a descriptor of another type to fill");
    fill(*one, i);
    one->is_finalized = true;
  }
  if (count != nullptr) *count = static_cast<std::int64_t>(given);
  return Status::success;
}

template <class T>
void put(DescriptorState& to, Attribute attribute, ElementType type, const T& value) {
  DescriptorState::Value& made = to.values[attribute];
  made = {type, 1, std::vector<std::byte>(sizeof value)};
  std::memcpy(made.bytes.data(), &value, sizeof value);
}

/// The addresses of a call in the order of the computation's tensors.
std::string read_pack(const DescriptorState& pack, Call& to) {
  const auto ids = pack.all<std::int64_t>(Attribute::pack_ids);
  const auto pointers = pack.all<void*>(Attribute::pack_pointers);
  const auto tensors = to.work->tensors();
  if (ids.size() != pointers.size()) return "other numbers of ids and of addresses";
  const auto constants = to.work->constants();
  if (ids.size() != tensors.size() + constants.size())
    return std::to_string(ids.size()) + " addresses, where the plan has " +
           std::to_string(tensors.size() + constants.size()) + " tensors";
  const auto address_of = [&](std::int64_t id) {
    const auto found = std::find(ids.begin(), ids.end(), id);
    return found == ids.end() ? nullptr : pointers[static_cast<std::size_t>(found - ids.begin())];
  };
  for (const Computation::Operand& operand : tensors) {
    if (std::ranges::find(ids, operand.tensor.id) == ids.end())
      return "no address of tensor " + std::to_string(operand.tensor.id);
    to.places.push_back(reinterpret_cast<Address>(address_of(operand.tensor.id)));
  }
  for (const std::int64_t id : constants) {
    const auto* const value = static_cast<const float*>(address_of(id));
    if (value == nullptr) return "no address of number " + std::to_string(id);
    to.constants.push_back(*value);
  }
  to.workspace = reinterpret_cast<Address>(pack.one<void*>(Attribute::pack_workspace));
  return to.mistake();
}

__attribute__((destructor)) void end_of_process() {
  const std::lock_guard lock{process().mutex};
  known().handles.report_leaks();
  known().descriptors.report_leaks();
}

}  // namespace
}  // namespace host

using namespace host;

TROUPE_CUDNN_ENTRY_POINTS(TROUPE_ENTRY_DECLARE)

// Begins an entry point: `entry` is the call, `place` where it is made.
#define TROUPE_CUDNN_ENTER(name, needs)                          \
  Entry entry{#name, __builtin_return_address(0), Needs::needs}; \
  const PlacePtr place = entry.place();                          \
  if (const Status refused = refusal_of(entry.refused()); refused != Status::success) return refused

TROUPE_EXPORT std::size_t cudnnGetVersion() {
  const char* const version = std::getenv("TROUPE_CUDA_HOST_CUDNN");
  return version == nullptr ? 91900 : std::strtoull(version, nullptr, 10);
}

TROUPE_EXPORT const char* cudnnGetErrorString(Status status) {
  switch (status) {
    case Status::success: return "success";
    case Status::not_initialized: return "the library was not initialized";
    case Status::bad_param: return "a bad parameter";
    case Status::not_finalized: return "a descriptor that is not finalized";
    case Status::not_supported: return "not supported";
    case Status::internal_error: return "an internal error";
    case Status::host_allocation_failed: return "no memory of the host";
    case Status::device_allocation_failed: return "no memory of the device";
    case Status::execution_failed: return "the execution failed on the GPU";
  }
  return "an unknown status";
}

// The library allocates when a handle is made, and waits for the device when one ends.
TROUPE_EXPORT Status cudnnCreate(Handle* handle) {
  TROUPE_CUDNN_ENTER(cudnnCreate, context);
  if (entry.outside_capture() != cuda::Result::success) return Status::not_initialized;
  *handle = known().handles.add(std::make_shared<HandleState>(HandleState{entry.device().number, {}}), place);
  return Status::success;
}
TROUPE_EXPORT Status cudnnDestroy(Handle handle) {
  TROUPE_CUDNN_ENTER(cudnnDestroy, driver);
  if (entry.outside_capture() != cuda::Result::success) return Status::not_initialized;
  return known().handles.end(handle, place) == nullptr ? Status::bad_param : Status::success;
}
TROUPE_EXPORT Status cudnnSetStream(Handle handle, StreamHandle stream) {
  TROUPE_CUDNN_ENTER(cudnnSetStream, context);
  const auto state = known().handles.find(handle, place);
  const auto on = entry.stream(stream);
  if (state == nullptr || on == nullptr) return Status::bad_param;
  if (state->device != on->device.number) {
    reports().add("wrong device", entry.place_on(on->number)->text() + " is on device " +
                                      std::to_string(on->device.number) + ", its handle on device " +
                                      std::to_string(state->device));
    return Status::bad_param;
  }
  state->stream = stream;
  return Status::success;
}

TROUPE_EXPORT Status cudnnBackendCreateDescriptor(DescriptorType type, Descriptor* descriptor) {
  TROUPE_CUDNN_ENTER(cudnnBackendCreateDescriptor, nothing);
  *descriptor = known().descriptors.add(std::make_shared<DescriptorState>(DescriptorState{.type = type}), place);
  return Status::success;
}
TROUPE_EXPORT Status cudnnBackendDestroyDescriptor(Descriptor descriptor) {
  TROUPE_CUDNN_ENTER(cudnnBackendDestroyDescriptor, nothing);
  return known().descriptors.end(descriptor, place) == nullptr ? Status::bad_param : Status::success;
}

TROUPE_EXPORT Status cudnnBackendSetAttribute(Descriptor descriptor, Attribute attribute, ElementType type,
                                              std::int64_t count, const void* elements) {
  TROUPE_CUDNN_ENTER(cudnnBackendSetAttribute, nothing);
  const auto state = known().descriptors.find(descriptor, place);
  if (state == nullptr) return Status::bad_param;
  const std::string name = "attribute " + std::to_string(static_cast<unsigned>(attribute));
  if (state->is_finalized) return misuse(place, name + " of a descriptor that is finalized");
  const AttributeRule* const rule = rule_of(state->type, attribute);
  if (rule == nullptr) return misuse(place, name + ", which descriptors of its type do not have");
  if (rule->type != type) return misuse(place, name + " with elements of another type");
  if (count < 1 || (rule->count != 0 && rule->count != count))
    return misuse(place, name + " with " + std::to_string(count) + " elements");
  const std::size_t size_bytes = static_cast<std::size_t>(count) * bytes_of_element(type);
  DescriptorState::Value value{type, count, std::vector<std::byte>(size_bytes)};
  std::memcpy(value.bytes.data(), elements, size_bytes);
  if (type == ElementType::descriptor)
    for (std::int64_t i = 0; i < count; ++i) {
      const auto part = known().descriptors.find(static_cast<const Descriptor*>(elements)[i], place);
      if (part == nullptr) return Status::bad_param;
      if (!part->is_finalized) return misuse(place, name + " that is not finalized"), Status::not_finalized;
    }
  if (type == ElementType::handle && known().handles.find(*static_cast<const Handle*>(elements), place) == nullptr)
    return Status::bad_param;
  state->values[attribute] = std::move(value);
  return Status::success;
}

TROUPE_EXPORT Status cudnnBackendFinalize(Descriptor descriptor) {
  TROUPE_CUDNN_ENTER(cudnnBackendFinalize, nothing);
  const auto state = known().descriptors.find(descriptor, place);
  if (state == nullptr) return Status::bad_param;
  std::string mistake;
  const Status status = finalize(*state, place, mistake);
  if (!mistake.empty()) return misuse(place, mistake);
  if (status != Status::success) return status;
  if (state->type == DescriptorType::graph)
    if (const Status refused = refusal_of(entry.all().calls.next(entry.all().settings, state->work->fault_name()));
        refused != Status::success)
      return refused;
  state->is_finalized = true;
  return Status::success;
}

TROUPE_EXPORT Status cudnnBackendGetAttribute(Descriptor descriptor, Attribute attribute, ElementType type,
                                              std::int64_t most, std::int64_t* count, void* elements) {
  TROUPE_CUDNN_ENTER(cudnnBackendGetAttribute, nothing);
  const auto state = known().descriptors.find(descriptor, place);
  if (state == nullptr) return Status::bad_param;
  if (!state->is_finalized) return misuse(place, "a descriptor that is not finalized"), Status::not_finalized;
  if (most != 0 && elements == nullptr) return misuse(place, "no room for what it asks for");
  switch (attribute) {
    case Attribute::heuristics_results:
      if (most == 0) return give(state->results, 0, count, nullptr);
      return give_descriptors(state->results.size(), DescriptorType::config, most, count, elements, place,
                              [&](DescriptorState& to, std::size_t i) {
                                to.work = state->work, to.handle = state->handle, to.config = state->results[i];
                              });
    case Attribute::config_engine:
      return give_descriptors(1, DescriptorType::engine, most, count, elements, place,
                              [&](DescriptorState& to, std::size_t) {
                                to.work = state->work, to.handle = state->handle, to.config = state->config;
                              });
    case Attribute::config_knob_choices:
      return give_descriptors(state->config.parts ? 1 : 0, DescriptorType::knob_choice, most, count, elements, place,
                              [&](DescriptorState& to, std::size_t) {
                                put(to, Attribute::knob_type, ElementType::knob_type, kParts);
                                put(to, Attribute::knob_value, ElementType::int64, *state->config.parts);
                              });
    case Attribute::engine_index:
      return give(std::vector{static_cast<std::int64_t>(state->config.engine)}, most, count, elements);
    case Attribute::engine_numerical_notes: return give(notes_of(state->config.engine), most, count, elements);
    case Attribute::knob_type: return give(state->all<KnobType>(attribute), most, count, elements);
    case Attribute::knob_value: return give(state->all<std::int64_t>(attribute), most, count, elements);
    case Attribute::plan_workspace_bytes:
      return give(std::vector{static_cast<std::int64_t>(workspace_bytes(*state->work, state->config))}, most, count,
                  elements);
    default:
      (void)type;
      return misuse(place, "attribute " + std::to_string(static_cast<unsigned>(attribute)) + ", which it cannot read");
  }
}

TROUPE_EXPORT Status cudnnBackendExecute(Handle handle, Descriptor plan, Descriptor pack) {
  TROUPE_CUDNN_ENTER(cudnnBackendExecute, context);
  const auto owner = known().handles.find(handle, place);
  const auto what = known().descriptors.find(plan, place), where = known().descriptors.find(pack, place);
  if (owner == nullptr || what == nullptr || where == nullptr || !known().are_there(*what, place))
    return Status::bad_param;
  if (!owner->stream) {
    reports().add("default stream", place->text() + ": its handle was never given a stream");
    return Status::bad_param;
  }
  const auto on = entry.stream(*owner->stream);
  if (on == nullptr) return Status::bad_param;
  const PlacePtr here = entry.place_on(on->number);
  if (!what->is_finalized || !where->is_finalized)
    return misuse(here, "a descriptor that is not finalized"), Status::not_finalized;
  if (what->type != DescriptorType::plan || where->type != DescriptorType::variant_pack)
    return misuse(here, "descriptors of other types than a plan and addresses");
  if (what->handle != handle) return misuse(here, "another handle than its plan's");
  Call call{.work = what->work, .config = what->config};
  if (const std::string mistake = read_pack(*where, call); !mistake.empty()) return misuse(here, mistake);
  if (call.config.engine == Engine::cannot_be_recorded && on->capture != nullptr) return Status::not_supported;
  auto operation = std::make_shared<const cuda::host::Operation>(
      cuda::host::Operation{here, [call, here, handle](Run& run) {
                              if (known().handles.find(handle, here) == nullptr)
                                return cuda::host::fail(run.device, cuda::Result::launch_failed);
                              run_call(run, call, here);
                            }});
  return cuda::host::submit(*on, std::move(operation)) == cuda::Result::success ? Status::success
                                                                                : Status::execution_failed;
}

}  // namespace troupe::cuda::dnn
