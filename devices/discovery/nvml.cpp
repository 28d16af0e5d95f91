#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <memory>

#include "devices/discovery/detail/nvml.hpp"
#include "runtime/base/error.hpp"
#include "runtime/topology/paths.hpp"

namespace troupe::detail {
namespace {

using namespace topology;

// The layouts of nvml.h; the library guarantees that they stay.
using Device = void*;
struct PciInfo {  // nvmlPciInfo_t, version 3
  std::array<char, 16> legacy_bus;
  unsigned domain, bus, device, device_id, subsystem_id;
  std::array<char, 32> bus_id;
};
struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
constexpr int kSuccess = 0;
constexpr int kNoPermission = 4;
constexpr int kLost = 15;
constexpr unsigned kMostLinks = 18;
constexpr unsigned kMostGpus = 256;
constexpr unsigned kSmClock = 1;
constexpr unsigned kMemoryClock = 2;
constexpr unsigned kUncorrected = 1;
constexpr unsigned kVolatile = 0;

struct CloseLibrary {
  void operator()(void* library) const noexcept { ::dlclose(library); }
};

class Nvml {
 public:
  explicit Nvml(const std::string& name) : library_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    ready_ = call("nvmlInit_v2") == kSuccess;
  }
  ~Nvml() {
    if (ready_) call("nvmlShutdown");
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  bool ready() const { return ready_; }

  /// The library's result; -1: it does not have the function.
  template <class... Arguments>
  int call(const char* name, Arguments... arguments) const {
    if (library_ == nullptr) return -1;
    auto* const function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library_.get(), name));
    return function == nullptr ? -1 : function(arguments...);
  }
  /// A text about the device; empty: there is none.
  std::string text(const char* name, Device device) const {
    std::array<char, 96> buffer{};
    if (call(name, device, buffer.data(), static_cast<unsigned>(buffer.size() - 1)) != kSuccess) return {};
    return buffer.data();
  }
  template <class T>
  std::optional<T> number(const char* name, Device device) const {
    T value{};
    if (call(name, device, &value) != kSuccess) return std::nullopt;
    return value;
  }

 private:
  std::unique_ptr<void, CloseLibrary> library_;
  bool ready_ = false;
};

/// "00000000:3B:00.0" -> "0000:3b:00.0", the form of the kernel.
std::string kernel_bus(const std::array<char, 32>& bus_id) {
  std::string bus{bus_id.data(), ::strnlen(bus_id.data(), bus_id.size())};
  std::transform(bus.begin(), bus.end(), bus.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto colon = bus.find(':');
  if (colon != std::string::npos && colon > 4) bus.erase(0, colon - 4);
  return bus;
}

void read_state(const Nvml& nvml, Device device, Gpu& gpu) {
  if (const auto memory = nvml.number<Memory>("nvmlDeviceGetMemoryInfo", device)) gpu.memory_bytes = memory->total;
  int major = 0;
  int minor = 0;
  if (nvml.call("nvmlDeviceGetCudaComputeCapability", device, &major, &minor) == kSuccess)
    gpu.architecture = text("sm_", major * 10 + minor);
  if (const auto use = nvml.number<Utilization>("nvmlDeviceGetUtilizationRates", device))
    gpu.utilization_percent = use->gpu;
  unsigned clock = 0;
  if (nvml.call("nvmlDeviceGetClockInfo", device, kSmClock, &clock) == kSuccess) gpu.clock_mhz = clock;
  if (nvml.call("nvmlDeviceGetMaxClockInfo", device, kSmClock, &clock) == kSuccess) gpu.most_clock_mhz = clock;
  if (nvml.call("nvmlDeviceGetMaxClockInfo", device, kMemoryClock, &clock) == kSuccess)
    gpu.most_memory_clock_mhz = clock;
  gpu.cores = nvml.number<unsigned>("nvmlDeviceGetNumGpuCores", device);
  gpu.memory_bus_bits = nvml.number<unsigned>("nvmlDeviceGetMemoryBusWidth", device);
  gpu.throttle_reasons = nvml.number<unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons", device);
  unsigned long long errors = 0;
  if (nvml.call("nvmlDeviceGetTotalEccErrors", device, kUncorrected, kVolatile, &errors) == kSuccess)
    gpu.uncorrected_errors = errors;
  unsigned now = 0;
  unsigned pending = 0;
  if (nvml.call("nvmlDeviceGetMigMode", device, &now, &pending) == kSuccess) gpu.mig = now != 0;
}

/// One entry per neighbour; lanes whose neighbour is not known count for "".
void read_links(const Nvml& nvml, Device device, PartIndex part, std::vector<AcceleratorLink>& links) {
  std::vector<AcceleratorLink> found;
  for (unsigned lane = 0; lane < kMostLinks; ++lane) {
    unsigned active = 0;
    if (nvml.call("nvmlDeviceGetNvLinkState", device, lane, &active) != kSuccess) continue;
    PciInfo far{};
    std::string bus;
    if (nvml.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, lane, &far) == kSuccess) bus = kernel_bus(far.bus_id);
    auto at = std::find_if(found.begin(), found.end(), [&](const AcceleratorLink& link) { return link.to == bus; });
    if (at == found.end()) at = found.insert(found.end(), {.from = part, .to = bus});
    // device_id has the vendor in its low half. A switch does not report its class; GPUs are known by their bus ids.
    ++at->lanes;
    at->lanes_down += active == 0;
  }
  links.insert(links.end(), found.begin(), found.end());
}

}  // namespace

void add_nvml(Machine& machine, const std::string& library) {
  const Nvml nvml{library};
  if (!nvml.ready()) return;
  std::array<char, 96> driver{};
  if (nvml.call("nvmlSystemGetDriverVersion", driver.data(), static_cast<unsigned>(driver.size() - 1)) == kSuccess)
    machine.system.gpu_driver = driver.data();
  unsigned count = 0;
  nvml.call("nvmlDeviceGetCount_v2", &count);
  const Index index{machine};
  for (unsigned i = 0; i < std::min(count, kMostGpus); ++i) {
    Device device = nullptr;
    const int opened = nvml.call("nvmlDeviceGetHandleByIndex_v2", i, &device);
    PciInfo pci{};
    if (opened != kSuccess || nvml.call("nvmlDeviceGetPciInfo_v3", device, &pci) != kSuccess) continue;
    const PartIndex part = index.at_bus(kernel_bus(pci.bus_id));
    auto gpu = std::find_if(machine.gpus.begin(), machine.gpus.end(), [&](const Gpu& g) { return g.part == part; });
    if (part == kNoPart || gpu == machine.gpus.end()) continue;
    const int answer = nvml.call("nvmlDeviceGetName", device, driver.data(), static_cast<unsigned>(driver.size() - 1));
    gpu->state = answer == kSuccess        ? GpuState::ok
                 : answer == kLost         ? GpuState::lost
                 : answer == kNoPermission ? GpuState::no_permission
                                           : GpuState::unknown;
    if (answer != kSuccess) continue;
    gpu->model = driver.data();
    gpu->uuid = nvml.text("nvmlDeviceGetUUID", device);
    gpu->serial = nvml.text("nvmlDeviceGetSerial", device);
    gpu->firmware = nvml.text("nvmlDeviceGetVbiosVersion", device);
    read_state(nvml, device, *gpu);
    read_links(nvml, device, part, machine.links);
  }
  // The library omits GPUs that do not answer or that this user may not open; the bus still shows them.
  for (Gpu& gpu : machine.gpus) {
    if (gpu.vendor != "nvidia" || gpu.state != GpuState::unknown) continue;
    const auto& bus = machine.parts[gpu.part].pci->bus;
    Device device = nullptr;
    const int answer = nvml.call("nvmlDeviceGetHandleByPciBusId_v2", bus.c_str(), &device);
    if (answer == kLost) gpu.state = GpuState::lost;
    if (answer == kNoPermission) gpu.state = GpuState::no_permission;
  }
  for (AcceleratorLink& link : machine.links) {
    const PartIndex to = index.at_bus(link.to);
    if (to != kNoPart) link.to_class = machine.parts[to].pci->class_code;
  }
  std::stable_sort(machine.links.begin(), machine.links.end(),
                   [](const AcceleratorLink& a, const AcceleratorLink& b) { return a.from < b.from; });
}

}  // namespace troupe::detail
