#include <unistd.h>

#include "devices/cuda/cuda_device.hpp"
#include "runtime/base/error.hpp"

namespace troupe {
namespace {

constexpr const char* kMissing =
    "this build has no device for GPUs: configure it with -DTROUPE_WITH_GPU_DEVICE=ON and build it again";

/// Whether nobody would want to use a GPU here: there is no NVIDIA driver, nor the one of Windows beneath this Linux.
bool has_no_driver() { return ::access("/dev/nvidiactl", F_OK) != 0 && ::access("/dev/dxg", F_OK) != 0; }

}  // namespace

std::unique_ptr<Device> make_cuda_device(AddressSpace&, CudaDeviceOptions) { fail(Code::unsupported, kMissing); }

CudaGpus find_cuda_gpus(const std::string&) {
  CudaGpus none;
  none.refusal = Status{Code::unsupported, kMissing};
  none.is_absent = has_no_driver();
  return none;
}

}  // namespace troupe
