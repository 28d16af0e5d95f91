#include "devices/cuda/kernels/list.hpp"

namespace troupe::cuda {

// The threads of a block decide together whether the stream has failed: another block of the kernel may end it
// meanwhile, and a thread that had left would be missing at the block's barriers.
#define TROUPE_GPU_KERNEL(name, Args)                                                              \
  static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= 4096);                       \
  extern "C" __global__ void troupe_##name(const __grid_constant__ Args args) {                    \
    if (args.stream == nullptr || __syncthreads_or(Block::glance(&args.stream->failed) != 0) == 0) \
      name(Block{}, args);                                                                         \
  }
TROUPE_CUDA_KERNELS(TROUPE_GPU_KERNEL)

}  // namespace troupe::cuda
