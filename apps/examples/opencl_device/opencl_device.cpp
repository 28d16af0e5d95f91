#include "opencl_device.hpp"

#include "runtime/compute/host_memory_device.hpp"

#include "opencl_context.hpp"
#include "opencl_replica.hpp"
#include "opencl_stream.hpp"
#include "wait_keeper.hpp"

namespace opencl {
namespace {

class OpenClDevice final : public HostMemoryDevice {
 public:
  OpenClDevice(AddressSpace& space, std::chrono::milliseconds wait_deadline)
      : HostMemoryDevice(space),
        waits_(wait_deadline),
        traits_{"opencl", context_.description(), context_.compute_units(), false} {}
  const DeviceTraits& traits() const override { return traits_; }
  std::unique_ptr<Stream> stream() override { return std::make_unique<OpenClStream>(context_, space(), waits_); }
  std::unique_ptr<Replica> compile(const Graph& graph, const Layout& layout, const BatchLayout& batch,
                                   const std::vector<Bucket>& buckets, const ReplicaMemory& memory) override {
    return std::make_unique<OpenClReplica>(context_, space(), graph, layout, batch, buckets, memory);
  }

 private:
  const Context context_;
  WaitKeeper waits_;
  const DeviceTraits traits_;
};

}  // namespace

std::unique_ptr<Device> make_opencl_device(AddressSpace& space, std::chrono::milliseconds wait_deadline) {
  TROUPE_CHECK(wait_deadline.count() > 0, Code::invalid, "an OpenCL device's waits need a deadline above 0, not ",
               wait_deadline.count(), " ms");
  return std::make_unique<OpenClDevice>(space, wait_deadline);
}

}  // namespace opencl
