#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/compute/device.hpp"

namespace troupe {

struct CudaDeviceOptions {
  std::uint32_t ordinal = 0;                       // which GPU, as the driver counts them
  std::chrono::milliseconds wait_deadline{30000};  // a wait that takes longer fails the stream with Code::timeout
  std::string driver = "libcuda.so.1";             // opened at run time
};

/// A GPU of NVIDIA by the driver's own interface. All work of its streams is kernels of ours; its replicas compute
/// graphs that are one chain of dense, relu, tanh, sigmoid, gelu and flatten layers up to a softmax_cross_entropy, and
/// refuse others with Error{unsupported} naming the layer. `space` outlives the device. Throws Error{environment} where
/// there is no GPU or none may be used, Error{unsupported} where this build cannot use it, each with what to do.
std::unique_ptr<Device> make_cuda_device(AddressSpace& space, CudaDeviceOptions options);

/// For people: the GPUs that the driver shows, a line each; throws as make_cuda_device.
std::vector<std::string> cuda_devices(const std::string& driver = "libcuda.so.1");

}  // namespace troupe
