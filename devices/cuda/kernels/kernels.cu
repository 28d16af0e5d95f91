#include "devices/cuda/kernels/list.hpp"

namespace troupe::cuda {

#define TROUPE_GPU_KERNEL(name, Args)                                            \
  static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= 4096);     \
  extern "C" __global__ void troupe_##name(const __grid_constant__ Args args) {  \
    if (args.stream == nullptr || args.stream->failed == 0) name(Block{}, args); \
  }
TROUPE_CUDA_KERNELS(TROUPE_GPU_KERNEL)

}  // namespace troupe::cuda
