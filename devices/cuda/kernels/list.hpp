#pragma once

#include "devices/cuda/kernels/bytes.hpp"
#include "devices/cuda/kernels/convert.hpp"
#include "devices/cuda/kernels/digest.hpp"
#include "devices/cuda/kernels/layers.hpp"
#include "devices/cuda/kernels/points.hpp"
#include "devices/cuda/kernels/sums.hpp"
#include "devices/cuda/kernels/update.hpp"

// All kernels: KERNEL(name, arguments). The body is troupe::cuda::name, the symbol troupe_name.
#define TROUPE_CUDA_KERNELS(KERNEL)                      \
  KERNEL(copy, CopyArgs)                                 \
  KERNEL(clear, ClearArgs)                               \
  KERNEL(wait, WaitArgs)                                 \
  KERNEL(signal, SignalArgs)                             \
  KERNEL(begin_call, BeginCallArgs)                      \
  KERNEL(end_call, EndCallArgs)                          \
  KERNEL(load_step_block, LoadStepBlockArgs)             \
  KERNEL(end_step_block, EndStepBlockArgs)               \
  KERNEL(reduce, ReduceArgs)                             \
  KERNEL(measure_gradient, MeasureGradientArgs)          \
  KERNEL(sum_up, SumUpArgs)                              \
  KERNEL(copy_sums, CopySumsArgs)                        \
  KERNEL(weighted_delta, WeightedDeltaArgs)              \
  KERNEL(convert, ConvertArgs)                           \
  KERNEL(convert_with_residual, ConvertWithResidualArgs) \
  KERNEL(add_converted, AddConvertedArgs)                \
  KERNEL(digest, DigestArgs)                             \
  KERNEL(measure_update, MeasureUpdateArgs)              \
  KERNEL(update, UpdateArgs)                             \
  KERNEL(take_batch, TakeBatchArgs)                      \
  KERNEL(multiply, MultiplyArgs)                         \
  KERNEL(sum_rows, SumRowsArgs)                          \
  KERNEL(activate, ActivateArgs)                         \
  KERNEL(activate_back, ActivateBackArgs)                \
  KERNEL(cross_entropy, CrossEntropyArgs)                \
  KERNEL(sum_losses, SumLossesArgs)
