// The driver, its devices and their contexts.
#include <cstdio>
#include <cstring>

#include "tests/support/cuda_host/entry.hpp"

namespace troupe::cuda {
namespace {

using namespace host;

bool is_device(Process& all, DeviceId device) {
  return device >= 0 && static_cast<std::size_t>(device) < all.devices.size();
}

void write_text(char* to, int length, const std::string& text) {
  if (length > 0) std::snprintf(to, static_cast<std::size_t>(length), "%s", text.c_str());
}

std::string bus_id(DeviceId device) {
  char text[32];
  std::snprintf(text, sizeof text, "0000:%02X:00.0", 0x10 + device);
  return text;
}

int compute_mode(const Settings& settings) {
  if (settings.mode == "exclusive") return static_cast<int>(ComputeMode::exclusive_process);
  return static_cast<int>(settings.mode == "prohibited" ? ComputeMode::prohibited : ComputeMode::normal);
}

/// What a small device of today says of itself. -1: not known here.
int attribute_of(const Settings& settings, DeviceAttribute attribute) {
  switch (attribute) {
    case DeviceAttribute::multiprocessor_count: return 4;
    case DeviceAttribute::compute_mode: return compute_mode(settings);
    case DeviceAttribute::unified_addressing: return 1;
    case DeviceAttribute::compute_capability_major: return 9;
    case DeviceAttribute::compute_capability_minor: return 0;
    case DeviceAttribute::can_use_host_pointer_for_registered_memory: return 1;
  }
  return -1;
}

}  // namespace

TROUPE_EXPORT Result cuInit(unsigned flags) {
  TROUPE_ENTER(cuInit, nothing);
  Process& all = entry.all();
  if (flags != 0) return Result::invalid_value;
  if (all.settings.devices == 0) return Result::no_device;
  if (all.initialized) return Result::success;
  watch_accesses();
  for (int i = 0; i < all.settings.devices; ++i) {
    all.devices.emplace_back();
    all.devices.back().number = i;
  }
  all.initialized = true;
  return Result::success;
}

TROUPE_EXPORT Result cuDriverGetVersion(int* version) {
  TROUPE_ENTER(cuDriverGetVersion, nothing);
  *version = entry.all().settings.driver_version;
  return Result::success;
}

TROUPE_EXPORT Result cuGetErrorName(Result error, const char** text) {
  TROUPE_ENTER(cuGetErrorName, nothing);
  *text = name_of(error);
  return *text == nullptr ? Result::invalid_value : Result::success;
}

TROUPE_EXPORT Result cuGetErrorString(Result error, const char** text) {
  TROUPE_ENTER(cuGetErrorString, nothing);
  *text = name_of(error);
  return *text == nullptr ? Result::invalid_value : Result::success;
}

TROUPE_EXPORT Result cuDeviceGetCount(int* count) {
  TROUPE_ENTER(cuDeviceGetCount, driver);
  *count = static_cast<int>(entry.all().devices.size());
  return Result::success;
}

TROUPE_EXPORT Result cuDeviceGet(DeviceId* device, int ordinal) {
  TROUPE_ENTER(cuDeviceGet, driver);
  if (!is_device(entry.all(), ordinal)) return Result::invalid_device;
  *device = ordinal;
  return Result::success;
}

TROUPE_EXPORT Result cuDeviceGetName(char* name, int length, DeviceId device) {
  TROUPE_ENTER(cuDeviceGetName, driver);
  if (!is_device(entry.all(), device)) return Result::invalid_device;
  write_text(name, length, entry.all().settings.mode == "mig" ? "Stand-in MIG 1g.10gb" : "Stand-in");
  return Result::success;
}

TROUPE_EXPORT Result cuDeviceGetAttribute(int* value, DeviceAttribute attribute, DeviceId device) {
  TROUPE_ENTER(cuDeviceGetAttribute, driver);
  if (!is_device(entry.all(), device)) return Result::invalid_device;
  *value = attribute_of(entry.all().settings, attribute);
  return *value < 0 ? Result::invalid_value : Result::success;
}

TROUPE_EXPORT Result cuDeviceGetUuid_v2(Uuid* uuid, DeviceId device) {
  TROUPE_ENTER(cuDeviceGetUuid_v2, driver);
  if (!is_device(entry.all(), device)) return Result::invalid_device;
  *uuid = {};
  write_text(uuid->bytes, sizeof uuid->bytes, "stand-in-" + std::to_string(device));
  return Result::success;
}

TROUPE_EXPORT Result cuDeviceGetPCIBusId(char* bus, int length, DeviceId device) {
  TROUPE_ENTER(cuDeviceGetPCIBusId, driver);
  if (!is_device(entry.all(), device)) return Result::invalid_device;
  write_text(bus, length, bus_id(device));
  return Result::success;
}

TROUPE_EXPORT Result cuDeviceGetByPCIBusId(DeviceId* device, const char* bus) {
  TROUPE_ENTER(cuDeviceGetByPCIBusId, driver);
  for (const DeviceState& known : entry.all().devices)
    if (strcasecmp(bus, bus_id(known.number).c_str()) == 0) {
      *device = known.number;
      return Result::success;
    }
  return Result::invalid_device;
}

TROUPE_EXPORT Result cuDeviceTotalMem_v2(std::size_t* bytes, DeviceId device) {
  TROUPE_ENTER(cuDeviceTotalMem_v2, driver);
  if (!is_device(entry.all(), device)) return Result::invalid_device;
  *bytes = entry.all().settings.memory_bytes;
  return Result::success;
}

TROUPE_EXPORT Result cuDevicePrimaryCtxRetain(Context* context, DeviceId device) {
  TROUPE_ENTER(cuDevicePrimaryCtxRetain, driver);
  if (!is_device(entry.all(), device)) return Result::invalid_device;
  if (entry.all().settings.mode == "prohibited") return Result::device_unavailable;
  ++entry.all().devices[static_cast<std::size_t>(device)].retained;
  *context = context_of(device);
  return Result::success;
}

TROUPE_EXPORT Result cuDevicePrimaryCtxRelease_v2(DeviceId device) {
  TROUPE_ENTER(cuDevicePrimaryCtxRelease_v2, driver);
  if (!is_device(entry.all(), device)) return Result::invalid_device;
  DeviceState& state = entry.all().devices[static_cast<std::size_t>(device)];
  if (state.retained == 0) {
    reports().add("double free", entry.place()->text() + " releases a context that nobody holds");
    return Result::invalid_context;
  }
  --state.retained;
  return Result::success;
}

TROUPE_EXPORT Result cuCtxSetCurrent(Context context) {
  TROUPE_ENTER(cuCtxSetCurrent, driver);
  const int device = context == nullptr ? -1 : device_of(context);
  if (context != nullptr && device < 0) return Result::invalid_context;
  current_device = device;
  return Result::success;
}

TROUPE_EXPORT Result cuCtxSynchronize(void) {
  TROUPE_ENTER(cuCtxSynchronize, context);
  Process& all = entry.all();
  DeviceState& device = entry.device();
  const Result allowed = entry.outside_capture();
  if (allowed != Result::success) return allowed;
  const Result waited = entry.wait(device, [&] {
    bool idle = true;
    all.streams.for_each([&](const StreamThread& s) { idle = idle && (&s.device != &device || s.idle()); });
    return idle;
  });
  if (waited != Result::success) return waited;
  all.streams.for_each([&](const StreamThread& s) {
    if (&s.device == &device) all.cpu.join(s.clock);
  });
  return Result::success;
}

TROUPE_EXPORT Result cuDeviceCanAccessPeer(int* can, DeviceId device, DeviceId peer) {
  TROUPE_ENTER(cuDeviceCanAccessPeer, driver);
  if (!is_device(entry.all(), device) || !is_device(entry.all(), peer)) return Result::invalid_device;
  *can = device != peer ? 1 : 0;
  return Result::success;
}

TROUPE_EXPORT Result cuCtxEnablePeerAccess(Context peer, unsigned flags) {
  TROUPE_ENTER(cuCtxEnablePeerAccess, context);
  const int other = device_of(peer);
  if (other < 0 || other == current_device) return Result::invalid_device;
  if (flags != 0) return Result::invalid_value;
  return entry.device().peers.insert(other).second ? Result::success : Result::peer_access_already_enabled;
}

}  // namespace troupe::cuda
