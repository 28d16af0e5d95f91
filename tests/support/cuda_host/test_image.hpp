#pragma once

#include <cstddef>

#include "devices/cuda/kernels/kernel.hpp"

namespace troupe::cuda::host {

/// For cuModuleLoadData, in the place of an image for GPUs: kernels of the program that loads it, so that a test can
/// bring its own. Any other image stands for host_kernels().
struct TestImage {
  char mark[24] = "troupe host kernels";
  const HostKernel* kernels = nullptr;
  std::size_t count = 0;
};

}  // namespace troupe::cuda::host
