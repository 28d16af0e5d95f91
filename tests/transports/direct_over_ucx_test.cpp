#include <gtest/gtest.h>

#include "tests/transports/communicator_worlds.hpp"
#include "tests/transports/cpu_ranks.hpp"
#include "tests/transports/ucx_means.hpp"

namespace troupe::contracts {
namespace {

class UcxEnds final : public DirectNetwork {
 public:
  explicit UcxEnds(std::string means) : means_(std::move(means)) {}
  std::unique_ptr<Transport> endpoint(Peer self, AddressSpace& space) override {
    UcxOptions options = testing::ucx_options(self, means_);
    options.flush = std::chrono::milliseconds{20};  // ranks of one process end one after the other
    return make_ucx_transport(space, options);
  }

 private:
  const std::string means_;
};

CommunicatorCase ucx_case(std::string name, std::string means, const MakeDevice& devices) {
  return {std::move(name),
          [=](const GroupSpec& spec) {
            return std::make_unique<DirectWorld>(spec, devices, std::make_unique<UcxEnds>(means));
          },
          /*seeds=*/3};
}
INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorContract,
                         ::testing::Values(ucx_case("DirectTcp", "tcp", reference_devices()),
                                           ucx_case("DirectShm", "shm", reference_devices())),
                         communicator_name);
INSTANTIATE_TEST_SUITE_P(UcxDrivenByStreams, CommunicatorContract,
                         ::testing::ValuesIn(if_cpu_device({ucx_case("DirectTcp", "tcp", cpu_devices()),
                                                            ucx_case("DirectShm", "shm", cpu_devices())})),
                         communicator_name);

}  // namespace
}  // namespace troupe::contracts
