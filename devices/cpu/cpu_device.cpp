#include "devices/cpu/cpu_device.hpp"

#include <utility>

#include "devices/cpu/cpu_replica.hpp"
#include "devices/cpu/cpu_stream.hpp"
#include "devices/cpu/onednn.hpp"
#include "runtime/compute/host_memory_device.hpp"

namespace troupe {
namespace {

class CpuDevice final : public HostMemoryDevice {
 public:
  CpuDevice(AddressSpace& space, CpuDeviceOptions options) : HostMemoryDevice(space), options_(std::move(options)) {
    TROUPE_CHECK(options_.threads > 0, Code::invalid, "a cpu device needs at least 1 thread");
    TROUPE_CHECK(options_.wait_deadline.count() > 0, Code::invalid,
                 "a cpu device's waits need a deadline above 0, not ", options_.wait_deadline.count(), " ms");
    cpu::limit_onednn();
    std::string where;
    for (const std::uint32_t cpu : options_.cpus) where += text(where.empty() ? ", on cpus " : " ", cpu);
    traits_ = {"cpu",
               text(cpu::onednn_description(), ", own kernels ", cpu::best_kernels().name, ", ", options_.threads,
                    options_.threads == 1 ? " thread" : " threads", where),
               options_.threads, cpu::has_bf16_instructions()};
  }

  const DeviceTraits& traits() const override { return traits_; }

  std::unique_ptr<Stream> stream() override {
    auto stream = std::make_unique<cpu::CpuStream>(space(), options_);
    if (!options_.cpus.empty()) stream->pin(options_.cpus);
    return stream;
  }

  std::unique_ptr<Replica> compile(const Graph& graph, const Layout& layout, const BatchLayout& batch,
                                   const std::vector<Bucket>& buckets, const ReplicaMemory& memory) override {
    return std::make_unique<cpu::CpuReplica>(space(), graph, layout, batch, buckets, memory,
                                             cpu::ProgramOptions{options_.threads, options_.share_activations});
  }

 private:
  const CpuDeviceOptions options_;
  DeviceTraits traits_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(AddressSpace& space, CpuDeviceOptions options) {
  return std::make_unique<CpuDevice>(space, std::move(options));
}

bool cpu_device_available() { return true; }
bool cpu_device_has_winograd() {
  cpu::limit_onednn();
  return cpu::onednn_has_winograd();
}

std::string describe_cpu_replica(const Replica& replica) {
  const auto* own = dynamic_cast<const cpu::CpuReplica*>(&replica);
  TROUPE_CHECK(own != nullptr, Code::invalid, "this replica belongs to another device");
  return own->description();
}

CpuReplicaMemory memory_of_cpu_replica(const Replica& replica) {
  const auto* own = dynamic_cast<const cpu::CpuReplica*>(&replica);
  TROUPE_CHECK(own != nullptr, Code::invalid, "this replica belongs to another device");
  return own->memory();
}

void enqueue_products(Replica& replica, Stream& stream, Memory batch, Memory sums) {
  auto* own = dynamic_cast<cpu::CpuReplica*>(&replica);
  TROUPE_CHECK(own != nullptr, Code::invalid, "this replica belongs to another device");
  own->products(stream, batch, sums);
}

}  // namespace troupe
