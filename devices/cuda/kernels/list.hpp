#pragma once

#include "devices/cuda/kernels/bytes.hpp"
#include "devices/cuda/kernels/points.hpp"

// All kernels: KERNEL(name, arguments). The body is troupe::cuda::name, the symbol troupe_name.
#define TROUPE_CUDA_KERNELS(KERNEL)          \
  KERNEL(copy, CopyArgs)                     \
  KERNEL(clear, ClearArgs)                   \
  KERNEL(wait, WaitArgs)                     \
  KERNEL(signal, SignalArgs)                 \
  KERNEL(load_step_block, LoadStepBlockArgs) \
  KERNEL(end_step_block, EndStepBlockArgs)
