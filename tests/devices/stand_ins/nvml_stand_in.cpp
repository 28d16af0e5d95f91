// Stands in for NVIDIA's management library: four GPUs at the bus ids of two_sockets() in the state that the variable
// TROUPE_NVML_STAND_IN names: healthy, degraded, no_permission, mig, lost, no_driver.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

struct PciInfo {
  char legacy_bus[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};

constexpr int kOk = 0, kNotSupported = 3, kNoPermission = 4, kNotFound = 6, kDriverNotLoaded = 9, kLost = 15;
constexpr unsigned kBuses[] = {0x12, 0x13, 0x22, 0x23};
unsigned devices[] = {0, 1, 2, 3};

bool is(std::string_view state) {
  const char* const set = std::getenv("TROUPE_NVML_STAND_IN");
  return set != nullptr && state == set;
}
unsigned number(void* device) { return *static_cast<unsigned*>(device); }
int answer(void* device) {
  if (number(device) != 3) return kOk;
  return is("lost") ? kLost : is("no_permission") ? kNoPermission : kOk;
}
int say(void* device, char* to, unsigned size, const char* what) {
  std::snprintf(to, size, "%s%u", what, number(device));
  return answer(device);
}

}  // namespace

extern "C" {
int nvmlInit_v2() { return is("no_driver") ? kDriverNotLoaded : kOk; }
int nvmlShutdown() { return kOk; }
int nvmlSystemGetDriverVersion(char* to, unsigned size) { return std::snprintf(to, size, "550.54.15"), kOk; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = is("no_permission") ? 3 : 4, kOk; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) { return *device = &devices[index], kOk; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  for (unsigned& each : devices) {
    char name[16];
    std::snprintf(name, sizeof name, "0000:%02x:00.0", kBuses[each]);
    if (std::strcmp(name, bus) == 0) return *device = &each, answer(&each);
  }
  return kNotFound;
}
int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  *info = {};
  std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", kBuses[number(device)]);
  return kOk;
}
int nvmlDeviceGetName(void* device, char* to, unsigned size) { return say(device, to, size, "Stand-in "); }
int nvmlDeviceGetUUID(void* device, char* to, unsigned size) { return say(device, to, size, "GPU-0000-"); }
int nvmlDeviceGetSerial(void* device, char* to, unsigned size) { return say(device, to, size, "serial"); }
int nvmlDeviceGetVbiosVersion(void* device, char* to, unsigned size) { return say(device, to, size, "92.00."); }
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) { return *memory = {40ULL << 30, 0, 0}, answer(device); }
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  return *major = 8, *minor = 0, answer(device);
}
int nvmlDeviceGetUtilizationRates(void* device, Utilization* use) { return *use = {55, 10}, answer(device); }
int nvmlDeviceGetClockInfo(void* device, unsigned, unsigned* clock) {
  return *clock = is("degraded") ? 600 : 1410, answer(device);
}
int nvmlDeviceGetMaxClockInfo(void* device, unsigned which, unsigned* clock) {
  return *clock = which == 2 ? 1215 : 1410, answer(device);
}
int nvmlDeviceGetNumGpuCores(void* device, unsigned* cores) { return *cores = 6912, answer(device); }
int nvmlDeviceGetMemoryBusWidth(void* device, unsigned* bits) { return *bits = 5120, answer(device); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  return *reasons = is("degraded") ? 0x40 : 0, answer(device);
}
int nvmlDeviceGetTotalEccErrors(void* device, unsigned, unsigned, unsigned long long* errors) {
  return *errors = 0, answer(device);
}
int nvmlDeviceGetMigMode(void* device, unsigned* now, unsigned* pending) {
  return *now = *pending = is("mig") ? 1 : 0, answer(device);
}
int nvmlDeviceGetNvLinkState(void* device, unsigned lane, unsigned* active) {
  if (lane >= 4 || is("mig")) return kNotSupported;
  *active = !(is("degraded") && number(device) == 1 && lane == 2);
  return answer(device);
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned, PciInfo* far) {
  *far = {};
  std::snprintf(far->bus_id, sizeof far->bus_id, "00000000:%02X:00.0", kBuses[number(device) ^ 1]);
  return answer(device);
}
}
