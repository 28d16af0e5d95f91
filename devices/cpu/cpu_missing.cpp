#include "devices/cpu/cpu_device.hpp"
#include "devices/cpu/layer_times.hpp"
#include "devices/cpu/try_threads.hpp"
#include "runtime/base/error.hpp"

namespace troupe {
namespace {

[[noreturn]] void missing() {
  fail(Code::unsupported, "this build has no CPU device: install oneDNN (Debian: libdnnl-dev) and configure again");
}

}  // namespace

std::unique_ptr<Device> make_cpu_device(AddressSpace&, CpuDeviceOptions) { missing(); }
bool cpu_device_available() { return false; }
bool cpu_device_has_winograd() { return false; }
std::string describe_cpu_replica(const Replica&) { missing(); }
CpuReplicaMemory memory_of_cpu_replica(const Replica&) { missing(); }
void enqueue_products(Replica&, Stream&, Memory, Memory) { missing(); }
ThreadTrial try_threads(const Graph&, std::uint32_t, std::uint32_t) { missing(); }
StepTimes measure_layers(const Graph&, std::uint32_t, std::uint32_t, std::uint32_t, std::string_view) { missing(); }

}  // namespace troupe
