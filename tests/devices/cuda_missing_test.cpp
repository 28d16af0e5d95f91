#include <gmock/gmock.h>

#include "devices/cuda/cuda_device.hpp"
#include "runtime/base/error.hpp"
#include "runtime/memory/arena.hpp"
#include "transports/nccl/nccl_communicator.hpp"

namespace troupe {
namespace {

using testing::HasSubstr;

TEST(BuildWithoutGpus, SaysHowToGetTheDeviceWhenOneIsAskedFor) {
  AddressSpace space;
  try {
    (void)make_cuda_device(space, {});
    FAIL() << "a device was made";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("-DTROUPE_WITH_GPU_DEVICE=ON"));
  }
}

TEST(BuildWithoutGpus, FindsNoneAndSaysWhy) {
  const CudaGpus found = find_cuda_gpus();
  EXPECT_TRUE(found.gpus.empty());
  EXPECT_EQ(found.refusal.code(), Code::unsupported);
  EXPECT_THAT(std::string{found.refusal.text()}, HasSubstr("-DTROUPE_WITH_GPU_DEVICE=ON"));
}

TEST(BuildWithoutGpus, FindsNoNcclAndSaysWhy) {
  const FoundNccl found = find_nccl();
  EXPECT_EQ(found.version, 0);
  EXPECT_THAT(found.why, HasSubstr("-DTROUPE_WITH_GPU_DEVICE=ON"));
}

}  // namespace
}  // namespace troupe
