// Modules, functions, launches.
#include <cstring>

#include "tests/support/cuda_host/entry.hpp"
#include "tests/support/cuda_host/test_image.hpp"

namespace troupe::cuda {
namespace {

using namespace host;

std::uintptr_t key_of(void* entry) { return reinterpret_cast<std::uintptr_t>(entry); }

/// The argument struct of a launch, from either way to give it; null: a report.
Arguments arguments_of(const HostKernel& kernel, void** parameters, void** extra, const PlacePtr& place) {
  const void* from = parameters == nullptr ? nullptr : parameters[0];
  std::size_t given = kernel.args_bytes;
  for (void** at = extra; at != nullptr && key_of(*at) != kLaunchParamEnd; at += 2) {
    if (key_of(*at) == kLaunchParamBufferPointer) from = at[1];
    if (key_of(*at) == kLaunchParamBufferSize) given = *static_cast<const std::size_t*>(at[1]);
  }
  if (from == nullptr || given != kernel.args_bytes) {
    reports().add("wrong arguments", place->text() + " is given " + std::to_string(from == nullptr ? 0 : given) +
                                         " bytes of arguments, not " + std::to_string(kernel.args_bytes));
    return nullptr;
  }
  const auto* const bytes = static_cast<const std::byte*>(from);
  return std::make_shared<const std::vector<std::byte>>(bytes, bytes + given);
}

}  // namespace

TROUPE_EXPORT Result cuModuleLoadData(Module* module, const void* image) {
  TROUPE_ENTER(cuModuleLoadData, context);
  if (image == nullptr) return Result::invalid_value;
  auto state = std::make_shared<ModuleState>(ModuleState{host_kernels(), {}});
  const TestImage marked;
  if (std::strcmp(static_cast<const char*>(image), marked.mark) == 0) {
    const auto& own = *static_cast<const TestImage*>(image);
    state->kernels = {own.kernels, own.count};
  }
  *module = entry.all().modules.add(std::move(state), entry.place());
  return Result::success;
}

TROUPE_EXPORT Result cuModuleUnload(Module module) {
  TROUPE_ENTER(cuModuleUnload, driver);
  const PlacePtr place = entry.place();
  const auto state = entry.all().modules.end(module, place);
  if (state == nullptr) return Result::invalid_handle;
  for (const Function function : state->functions) entry.all().functions.end(function, place);
  return Result::success;
}

TROUPE_EXPORT Result cuModuleGetFunction(Function* function, Module module, const char* name) {
  TROUPE_ENTER(cuModuleGetFunction, context);
  const PlacePtr place = entry.place();
  const auto state = entry.all().modules.find(module, place);
  if (state == nullptr) return Result::invalid_handle;
  for (const HostKernel& kernel : state->kernels)
    if (std::strcmp(kernel.name, name) == 0) {
      // A launch that is under way keeps the module.
      *function = entry.all().functions.add({state, &kernel}, place);
      state->functions.push_back(*function);
      return Result::success;
    }
  return Result::not_found;
}

TROUPE_EXPORT Result cuLaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned, StreamHandle stream,
                                    void** parameters, void** extra) {
  TROUPE_ENTER(cuLaunchKernel, context);
  TROUPE_STREAM(on, stream);
  const auto kernel = entry.all().functions.find(function, entry.place_on(on->number));
  if (kernel == nullptr) return Result::invalid_handle;
  const PlacePtr place = entry.place_on(on->number, std::string{"kernel "} + kernel->name);
  if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 || block_x == 0 ||
      block_x > kBlockThreads) {
    reports().add("wrong grid", place->text() + " has another grid than blocks in a row of at most " +
                                    std::to_string(kBlockThreads) + " threads");
    return Result::invalid_value;
  }
  if (on->capture == nullptr && entry.all().settings.prepared == kernel->name)
    entry.all().prepared.emplace(on->number, place);
  const auto args = arguments_of(*kernel, parameters, extra, place);
  if (args == nullptr) return Result::invalid_value;
  return entry.submit(*on, kernel_operation(place, kernel, args, grid_x));
}

}  // namespace troupe::cuda
