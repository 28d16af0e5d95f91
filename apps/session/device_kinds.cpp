#include "apps/session/device_kinds.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "devices/cpu/cpu_device.hpp"
#include "devices/cuda/cuda_device.hpp"
#include "runtime/base/error.hpp"

namespace troupe {
namespace {

struct DeviceKind {
  std::string_view name;  // RankPlan::device
  std::unique_ptr<Device> (*make)(const DeviceContext& context, const DeviceChoices& choices);
};

std::unique_ptr<Device> make_cores(const DeviceContext& context, const DeviceChoices& choices) {
  return make_cpu_device(context.space, {.cpus = context.plan.cpus,
                                         .threads = choices.cpu_threads(),
                                         .may_spin = context.plan.may_spin,
                                         .wait_deadline = context.wait_deadline,
                                         .waits = context.waits});
}

std::unique_ptr<Device> make_gpu(const DeviceContext& context, const DeviceChoices& choices) {
  return make_cuda_device(context.space,
                          {.bus = context.plan.gpu, .wait_deadline = context.wait_deadline, .tf32 = choices.tf32});
}

constexpr std::array kKinds{DeviceKind{"cpu", make_cores}, DeviceKind{"cuda", make_gpu}};

}  // namespace

std::unique_ptr<Device> make_planned_device(const DeviceContext& context, const DeviceChoices& choices) {
  const auto* const kind = std::ranges::find(kKinds, context.plan.device, &DeviceKind::name);
  TROUPE_CHECK(kind != kKinds.end(), Code::invalid, "rank ", context.plan.rank.value,
               ": the plan has a device of kind \"", context.plan.device,
               "\", which this program does not know; start all ranks from the same version of it");
  return kind->make(context, choices);
}

}  // namespace troupe
