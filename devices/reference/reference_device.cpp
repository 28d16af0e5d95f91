#include "devices/reference/reference_device.hpp"

#include <utility>

#include "devices/reference/reference_replica.hpp"
#include "devices/reference/reference_stream.hpp"
#include "runtime/compute/host_memory_device.hpp"

namespace troupe {
namespace {

using reference::ReferenceStream;
using reference::WordReader;

ReferenceStream& own(Stream& stream) {
  auto* found = dynamic_cast<ReferenceStream*>(&stream);
  TROUPE_CHECK(found != nullptr, Code::invalid, "a reference replica was given another device's stream");
  return *found;
}

class ReferenceDevice final : public HostMemoryDevice {
 public:
  ReferenceDevice(AddressSpace& space, std::chrono::milliseconds wait_deadline)
      : HostMemoryDevice(space), wait_deadline_(wait_deadline) {}
  const DeviceTraits& traits() const override { return traits_; }
  std::unique_ptr<Stream> stream() override { return std::make_unique<ReferenceStream>(space(), wait_deadline_); }
  std::unique_ptr<Replica> compile(const Graph& graph, const Layout& layout, const BatchLayout& batch,
                                   const std::vector<Bucket>& buckets, const ReplicaMemory& memory) override {
    return make_reference_replica({[this](const Memory& part) { return space().address(part); },
                                   [](Stream& stream, const ReplicaCall& call) {
                                     own(stream).run(
                                         {}, {}, [call](WordReader) { call.run(call.batch, call.rows, call.sums); });
                                   }},
                                  graph, layout, batch, buckets, memory);
  }

 private:
  const std::chrono::milliseconds wait_deadline_;
  const DeviceTraits traits_{"reference", "plain loops in f64 on one thread", 1, false};
};

}  // namespace

std::unique_ptr<Device> make_reference_device(AddressSpace& space, std::chrono::milliseconds wait_deadline) {
  TROUPE_CHECK(wait_deadline.count() > 0, Code::invalid, "a reference device's waits need a deadline above 0, not ",
               wait_deadline.count(), " ms");
  return std::make_unique<ReferenceDevice>(space, wait_deadline);
}

}  // namespace troupe
