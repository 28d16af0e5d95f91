#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "devices/cpu/kernels/kernels.hpp"

namespace troupe::cpu {

/// The shape of one head of one row of a batch. The vectors of neighbouring places, `part` elements each, are
/// `input_step` elements apart in the queries, keys and values (and the gradients to them), and `output_step` in the
/// outputs (and the gradients to them).
struct AttentionHead {
  std::size_t length = 0, part = 0;
  std::size_t input_step = 0, output_step = 0;
  bool causal = false;
};

/// The first elements of a head's tensors; the last four are used only by the backward pass.
template <class Element>
struct HeadTensors {
  const Element *query, *key, *value;
  Element* output;
  float* logarithms;  // [length]: of each query, log2 of the sum that its weights were divided by
  const Element* gradient;
  Element *to_query, *to_key, *to_value;
};

/// Attention of one head by one thread, for f32 or bf16 (`Element`), with f32 arithmetic. Nothing of size length x
/// length is kept: tiles of weights stay in the caches, and the backward pass computes them again. Sources: Rabe and
/// Staats 2021 (Self-attention does not need O(n^2) memory); Dao et al. 2022 (FlashAttention), section 3.1.
template <class Element>
struct HeadKernels {
  void (*forward)(const Kernels& kernels, const AttentionHead& head, const HeadTensors<Element>& of, float* room);
  void (*backward)(const Kernels& kernels, const AttentionHead& head, const HeadTensors<Element>& of, float* room);
};

struct AttentionKernels {
  const char* name;
  /// f32 elements of scratch memory that a call needs; they start at a multiple of 64 bytes.
  std::size_t (*room_elements)(const AttentionHead& head, bool backward);
  HeadKernels<float> f32;
  HeadKernels<std::uint16_t> bf16;

  template <class Element>
  const HeadKernels<Element>& of() const noexcept {
    if constexpr (sizeof(Element) == sizeof(float))
      return f32;
    else
      return bf16;
  }
};

extern const AttentionKernels kBaselineAttention;
#if defined(TROUPE_KERNELS_X86)
extern const AttentionKernels kAvx2Attention;
extern const AttentionKernels kAvx512Attention;
#endif

/// All sets that this machine can execute and max_cpu_isa() allows, the narrowest first.
std::vector<const AttentionKernels*> usable_attention_kernels();

}  // namespace troupe::cpu
