#pragma once

#include "devices/cuda/kernels/batch_norms.hpp"
#include "devices/cuda/kernels/batches.hpp"
#include "devices/cuda/kernels/bytes.hpp"
#include "devices/cuda/kernels/column_sums.hpp"
#include "devices/cuda/kernels/convert.hpp"
#include "devices/cuda/kernels/convolutions.hpp"
#include "devices/cuda/kernels/digest.hpp"
#include "devices/cuda/kernels/elements.hpp"
#include "devices/cuda/kernels/loss_scale.hpp"
#include "devices/cuda/kernels/losses.hpp"
#include "devices/cuda/kernels/points.hpp"
#include "devices/cuda/kernels/pools.hpp"
#include "devices/cuda/kernels/products.hpp"
#include "devices/cuda/kernels/row_norms.hpp"
#include "devices/cuda/kernels/sequences.hpp"
#include "devices/cuda/kernels/short_works.hpp"
#include "devices/cuda/kernels/sums.hpp"
#include "devices/cuda/kernels/times.hpp"
#include "devices/cuda/kernels/update.hpp"
#include "devices/cuda/kernels/weight_orders.hpp"

// All kernels: KERNEL(name, arguments). The body is troupe::cuda::name, the symbol troupe_name.
#define TROUPE_CUDA_KERNELS(KERNEL)                      \
  KERNEL(copy, CopyArgs)                                 \
  KERNEL(clear, ClearArgs)                               \
  KERNEL(wait, WaitArgs)                                 \
  KERNEL(signal, SignalArgs)                             \
  KERNEL(note_time, NoteTimeArgs)                        \
  KERNEL(begin_call, BeginCallArgs)                      \
  KERNEL(end_call, EndCallArgs)                          \
  KERNEL(load_step_block, LoadStepBlockArgs)             \
  KERNEL(end_step_block, EndStepBlockArgs)               \
  KERNEL(short_works, ShortWorksArgs)                    \
  KERNEL(reduce, ReduceArgs)                             \
  KERNEL(check_gradient, CheckGradientArgs)              \
  KERNEL(sum_up, SumUpArgs)                              \
  KERNEL(copy_sums, CopySumsArgs)                        \
  KERNEL(weighted_delta, WeightedDeltaArgs)              \
  KERNEL(convert, ConvertArgs)                           \
  KERNEL(convert_with_residual, ConvertWithResidualArgs) \
  KERNEL(add_converted, AddConvertedArgs)                \
  KERNEL(digest, DigestArgs)                             \
  KERNEL(add_update_squares, AddUpdateSquaresArgs)       \
  KERNEL(adapt_loss_scale, AdaptLossScaleArgs)           \
  KERNEL(leave_out_gradient, LeaveOutGradientArgs)       \
  KERNEL(leave_out_sums, LeaveOutSumsArgs)               \
  KERNEL(write_ranges, WriteRangesArgs)                  \
  KERNEL(update, UpdateArgs)                             \
  KERNEL(take_fields, TakeFieldsArgs)                    \
  KERNEL(multiply, MultiplyArgs)                         \
  KERNEL(convolve, ConvolveArgs)                         \
  KERNEL(convolve_to_images, ConvolveToImagesArgs)       \
  KERNEL(convolve_to_weights, ConvolveToWeightsArgs)     \
  KERNEL(add_parts, AddPartsArgs)                        \
  KERNEL(sum_columns, SumColumnsArgs)                    \
  KERNEL(max_pool, MaxPoolArgs)                          \
  KERNEL(max_pool_back, MaxPoolBackArgs)                 \
  KERNEL(average_pool, AveragePoolArgs)                  \
  KERNEL(average_pool_back, AveragePoolBackArgs)         \
  KERNEL(activate, ActivateArgs)                         \
  KERNEL(activate_back, ActivateBackArgs)                \
  KERNEL(combine, CombineArgs)                           \
  KERNEL(factor_back, FactorBackArgs)                    \
  KERNEL(move_columns, MoveColumnsArgs)                  \
  KERNEL(permute, PermuteArgs)                           \
  KERNEL(order_weights, OrderWeightsArgs)                \
  KERNEL(drop, DropArgs)                                 \
  KERNEL(sum_moments, SumMomentsArgs)                    \
  KERNEL(running_moments, RunningMomentsArgs)            \
  KERNEL(normalize_batch, NormalizeBatchArgs)            \
  KERNEL(sum_slopes, SumSlopesArgs)                      \
  KERNEL(normalize_batch_back, NormalizeBatchBackArgs)   \
  KERNEL(normalize_rows, NormalizeRowsArgs)              \
  KERNEL(normalize_rows_back, NormalizeRowsBackArgs)     \
  KERNEL(embed, EmbedArgs)                               \
  KERNEL(link_tokens, LinkTokensArgs)                    \
  KERNEL(embed_back, EmbedBackArgs)                      \
  KERNEL(add_repeated, AddRepeatedArgs)                  \
  KERNEL(softmax_rows, SoftmaxRowsArgs)                  \
  KERNEL(softmax_rows_back, SoftmaxRowsBackArgs)         \
  KERNEL(cross_entropy, CrossEntropyArgs)                \
  KERNEL(number_loss, NumberLossArgs)                    \
  KERNEL(no_loss, NoLossArgs)
