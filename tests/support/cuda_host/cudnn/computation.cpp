// What all computations of graphs have in common: engines, addresses, and what a call touches.
#include "tests/support/cuda_host/cudnn/computation.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace troupe::cuda::dnn::host {
namespace {

using cuda::host::process;
using cuda::host::reports;

const void* pointer_to(Address at) { return reinterpret_cast<const void*>(at); }

bool overlaps(Address a, std::uint64_t a_bytes, Address b, std::uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

/// The ranges of a tensor's elements, in their order: one where there are no gaps.
std::vector<std::pair<Address, Address>> ranges_of(const TensorForm& of, Address at) {
  if (of.count() * of.element_bytes() == of.size_bytes()) return {{at, at + of.size_bytes()}};
  std::vector<std::pair<Address, Address>> all;
  Extents i{};
  for (i[0] = 0; i[0] < of.extents[0]; ++i[0])
    for (i[1] = 0; i[1] < of.extents[1]; ++i[1])
      for (i[2] = 0; i[2] < of.extents[2]; ++i[2])
        for (i[3] = 0; i[3] < of.extents[3]; ++i[3]) {
          Address first = at;
          for (std::size_t d = 0; d < 4; ++d) first += static_cast<Address>(i[d] * of.strides[d]) * of.element_bytes();
          all.emplace_back(first, first + of.element_bytes());
        }
  std::ranges::sort(all);
  return all;
}

/// Whether two tensors have bytes in common. Those of attention lie in each other's gaps.
bool have_common_bytes(const TensorForm& a, Address a_at, const TensorForm& b, Address b_at) {
  if (!overlaps(a_at, a.size_bytes(), b_at, b.size_bytes())) return false;
  const auto first = ranges_of(a, a_at), second = ranges_of(b, b_at);
  for (auto i = first.begin(), j = second.begin(); i != first.end() && j != second.end();) {
    if (i->first < j->second && j->first < i->second) return true;
    i->second <= j->first ? void(++i) : void(++j);
  }
  return false;
}

}  // namespace

Stored stored(DataType type) {
  return type == DataType::f32 ? Stored::f32 : type == DataType::f16 ? Stored::f16 : Stored::bf16;
}

std::uint64_t TensorForm::count() const noexcept {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents) product *= extent;
  return static_cast<std::uint64_t>(product);
}

std::uint64_t TensorForm::element_bytes() const noexcept {
  return type == DataType::boolean ? 1 : type == DataType::f32 || type == DataType::i32 ? 4 : 2;
}

std::uint64_t TensorForm::size_bytes() const noexcept {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < 4; ++d) last += (extents[d] - 1) * strides[d];
  return static_cast<std::uint64_t>(last + 1) * element_bytes();
}

bool TensorForm::is_channels_last() const noexcept {
  const std::int64_t channels = extents[1], row = channels * extents[3];
  return strides == Extents{row * extents[2], 1, row, channels};
}

std::string TensorForm::text() const {
  std::string said = type == DataType::i32       ? "i32"
                     : type == DataType::boolean ? "boolean"
                     : type == DataType::f32     ? "f32"
                     : type == DataType::f16     ? "f16"
                                                 : "bf16";
  const char* before = " [";
  for (const std::int64_t extent : extents) said += std::exchange(before, ", ") + std::to_string(extent);
  return said + "]";
}

/// Fast engines need addresses at multiples of 16 bytes.
std::vector<EngineConfig> proposals(const Computation& of, HeuristicsMode mode) {
  constexpr std::int64_t kFast = 16;
  if (mode == HeuristicsMode::fallback) return {{Engine::direct, {}}};
  if (mode == HeuristicsMode::b) return {};  // it knows few graphs
  std::vector<EngineConfig> found{{Engine::with_other_bits, {}},
                                  {Engine::with_much_memory, {}},
                                  {Engine::cannot_be_recorded, {}},
                                  {Engine::cannot_be_built, {}}};
  for (const auto& [tensor, is_read, is_written] : of.tensors()) {
    const bool is_vector = tensor.count() == static_cast<std::uint64_t>(tensor.extents[1]);
    if (tensor.alignment < kFast && !is_vector) return found;
  }
  found.push_back({Engine::tensor_cores, {}});
  found.push_back({Engine::in_parts, 2});
  return found;
}

std::vector<NumericalNote> notes_of(Engine engine) {
  if (engine == Engine::tensor_cores) return {NumericalNote::tensor_core};
  if (engine == Engine::with_other_bits) return {NumericalNote::nondeterministic};
  return {};
}

std::uint64_t words_of_part(const Computation& of) {
  constexpr std::uint64_t kMost = std::uint64_t{24} << 20U;
  for (const Computation::Operand& operand : of.tensors())
    if (operand.is_written) return std::min(operand.tensor.count(), kMost);
  return 0;
}

std::uint64_t workspace_bytes(const Computation& of, const EngineConfig& config) {
  if (config.engine == Engine::with_much_memory) return std::uint64_t{1} << 40U;
  if (config.engine != Engine::in_parts) return 0;
  return static_cast<std::uint64_t>(config.parts.value_or(1)) * words_of_part(of) * sizeof(float) + 3;
}

cuda::host::Uses Call::uses() const {
  cuda::host::Uses found;
  const auto all = work->tensors();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].is_read) found.push_back({pointer_to(places[i]), all[i].tensor.size_bytes(), Access::reads});
    if (all[i].is_written) found.push_back({pointer_to(places[i]), all[i].tensor.size_bytes(), Access::writes});
  }
  if (const std::uint64_t size_bytes = workspace_bytes(*work, config); size_bytes != 0)
    found.push_back({pointer_to(workspace), size_bytes, Access::writes});
  return found;
}

std::string Call::mistake() const {
  const auto all = work->tensors();
  const std::uint64_t needed = workspace_bytes(*work, config);
  const auto overlap = [&](std::size_t a, std::size_t b) {
    return have_common_bytes(all[a].tensor, places[a], all[b].tensor, places[b]);
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    const TensorForm& tensor = all[i].tensor;
    const std::string name = "tensor " + std::to_string(tensor.id);
    if (places[i] == 0) return "no address of " + name;
    if (places[i] % static_cast<Address>(tensor.alignment) != 0)
      return name + " at no multiple of the " + std::to_string(tensor.alignment) + " bytes that it was described with";
    for (std::size_t result = 0; result < all.size(); ++result)
      if (all[result].is_written && result != i && overlap(i, result)) return "a result that overlaps " + name;
    if (needed != 0 && overlaps(places[i], tensor.size_bytes(), workspace, needed))
      return "a workspace that overlaps " + name;
  }
  if (needed != 0 && workspace == 0) return "no workspace, where the plan needs " + std::to_string(needed) + " bytes";
  return {};
}

namespace {

/// Whether `variable` names what is computed. Results are never spoilt of the engine that is proposed last.
bool is_asked_for(const char* variable, const Call& call) {
  const char* const name = std::getenv(variable);
  return name != nullptr && call.config.engine != Engine::direct && std::string_view{name} == call.work->fault_name();
}

void spoil(const Call& call, const Found& found, float by) {
  const auto all = call.work->tensors();
  for (std::size_t t = 0; t < all.size(); ++t) {
    if (!all[t].is_written) continue;
    const Stored type = stored(all[t].tensor.type);
    for (std::size_t i = 0; i < all[t].tensor.count(); ++i)
      store(found.tensors[t], type, i, load(found.tensors[t], type, i) + by);
  }
}

}  // namespace

void run_call(Run& run, const Call& call, const PlacePtr& place) {
  if (!cuda::host::may_use(run, place, call.uses())) return;
  process().takes_time_of(call.work->fault_name() + (":" + std::to_string(static_cast<int>(call.config.engine))));
  const cuda::host::Memory& memory = process().memory;
  Found found;
  for (const Address at : call.places) found.tensors.push_back(memory.at(at));
  found.constants = call.constants;
  if (workspace_bytes(*call.work, call.config) != 0) found.workspace = static_cast<float*>(memory.at(call.workspace));
  run.lock.unlock();
  const std::string mistake = call.work->compute(call.config, found);
  if (is_asked_for("TROUPE_CUDA_HOST_CUDNN_WRONG", call)) spoil(call, found, 1);
  // Less than rounding explains.
  static std::atomic<unsigned> calls = 0;
  if (is_asked_for("TROUPE_CUDA_HOST_CUDNN_OTHER_BITS", call) && ++calls % 2 == 0) spoil(call, found, 0.0005F);
  run.lock.lock();
  if (!mistake.empty()) reports().add("wrong graph", place->text() + " is given " + mistake);
}

}  // namespace troupe::cuda::dnn::host
