#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "devices/cuda/descriptors.hpp"

namespace troupe::cuda {

/// Scaled dot product attention, or its gradient, without addresses. Queries, keys and values are parts of one tensor
/// [rows, length, 3, heads, part], the gradients to them likewise; the output and its gradient are [rows, length,
/// heads, part]. All of them have `type`, which has 16 bits. Two tensors of [rows, heads, length] are f32: the
/// logarithms of the sums of exponentials, which the forward pass writes and the gradient reads, and sums that the
/// gradient writes.
struct AttentionForm {
  bool is_backward = false;
  bool causal = false;
  Stored type = Stored::bf16;
  std::uint32_t rows = 0, length = 0, heads = 0, part = 0;
  std::uint32_t alignment = 0;  // the least of the addresses: a power of two, at most 256
  friend auto operator<=>(const AttentionForm&, const AttentionForm&) = default;
};

// Ids of its tensors.
inline constexpr std::int64_t kQueries = 1, kKeys = 2, kValues = 3, kAttended = 4, kLogSums = 5, kToAttended = 6,
                              kToQueries = 7, kToKeys = 8, kToValues = 9, kProductSums = 10;

/// A text of one line that identifies the form.
std::string text_of(const AttentionForm& form);
/// Source: Dao 2023 (FlashAttention-2), section 3.1; as operations of a graph: NVIDIA's front end for cuDNN.
std::vector<dnn::Descriptor> operations_of(const AttentionForm& form, Descriptors& made);
/// The numbers that are passed with each call.
std::vector<DnnConstant> constants_of(const AttentionForm& form);

}  // namespace troupe::cuda
