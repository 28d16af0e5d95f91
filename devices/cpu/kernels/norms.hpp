#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::cpu {

/// What each column of a batch norm's matrix is normalized by: (x - mean) * factor + shift; with `relu`, 0 where that
/// is below 0.
struct NormColumns {
  const float* means;
  const float* factors;
  const float* shifts;
  bool relu;
};

/// The loops of batch norms over some rows of a matrix [rows, width], f32 or bf16 (`Element`), with f32 arithmetic.
/// Functions that read the rows twice expect that the rows stay in the first-level cache. Arrays need no alignment;
/// those with a value for each column are [width].
template <class Element>
struct NormKernels {
  const char* name;
  /// The means, and the sums of the squares of the distances from them.
  void (*moments)(const Element* x, std::size_t rows, std::size_t width, float* means, float* squares);
  /// `y` may be `x`.
  void (*normalize)(const Element* x, Element* y, const NormColumns& by, std::size_t rows, std::size_t width);
  /// The sums of the gradients to the output, and of these times (x - mean). A gradient counts as 0 where the ReLU cut
  /// off, which is computed again.
  void (*gradient_sums)(const Element* x, const Element* gradient, const NormColumns& by, std::size_t rows,
                        std::size_t width, float* sums, float* products);
  /// gradient = factor * (gradient - sum - (x - mean) * product), likewise.
  void (*to_input)(const Element* x, Element* gradient, const NormColumns& by, const float* sums, const float* products,
                   std::size_t rows, std::size_t width);
};

struct NormKernelSet {
  NormKernels<float> f32;
  NormKernels<std::uint16_t> bf16;

  template <class Element>
  const NormKernels<Element>& of() const noexcept {
    if constexpr (sizeof(Element) == sizeof(float))
      return f32;
    else
      return bf16;
  }
};

#if defined(TROUPE_KERNELS_X86)
extern const NormKernelSet kAvx2Norms;
extern const NormKernelSet kAvx512Norms;
extern const NormKernelSet kAvx512Bf16Norms;  // rounds by an instruction
#endif

/// All sets that this machine can execute and max_cpu_isa() allows, the narrowest first.
std::vector<const NormKernelSet*> usable_norm_kernels();

}  // namespace troupe::cpu
