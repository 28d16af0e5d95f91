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
  /// Outputs are written past the caches, where addresses allow it; those of to_input() only to another place
  /// than the gradient, which has just been read.
  bool streams;
};

/// The loops of batch norms over some rows of a matrix [rows, width], f32 or bf16 (`Element`), with f32 arithmetic.
/// Arrays need no alignment; those with a value for each column are [width].
template <class Element>
struct NormKernels {
  const char* name;
  /// The means, and the sums of the squares of the distances from them.
  void (*moments)(const Element* x, std::size_t rows, std::size_t width, float* means, float* squares);
  /// What is added to the normalized numbers, before the ReLU; null: nothing. `y` may be `x` or `other`.
  void (*normalize)(const Element* x, const Element* other, Element* y, const NormColumns& by, std::size_t rows,
                    std::size_t width);
  /// The sums of the gradients to the output, and of these times (x - mean). A gradient counts as 0 where the ReLU cut
  /// off, which is computed again.
  void (*gradient_sums)(const Element* x, const Element* gradient, const NormColumns& by, std::size_t rows,
                        std::size_t width, float* sums, float* products);
  /// to = factor * (gradient - sum - (x - mean) * product), likewise; `to` may be `gradient`.
  void (*to_input)(const Element* x, const Element* gradient, Element* to, const NormColumns& by, const float* sums,
                   const float* products, std::size_t rows, std::size_t width);
};

/// What a batch norm has for each column after its backward pass's sums: the gradients to shift and scale, and what
/// NormKernels::to_input() takes.
struct NormGradients {
  double epsilon, count;  // of rows
  const float* variances;
  const double* sums;      // of the gradients to the output
  const double* products;  // of these times (x - mean)
  float* to_shift;
  float* to_scale;
  float* mean_sums;
  float* mean_products;
};

/// The loops that combine the sums of parts of the rows, in f64. Arrays are [width].
struct NormSumKernels {
  /// sums += factor * values.
  void (*add)(const float* values, double factor, std::size_t width, double* sums);
  /// squares += those of `rows` rows around their own means, as squares around `mean`.
  void (*add_squares)(const float* of_rows, const float* means, double rows, const double* mean, std::size_t width,
                      double* squares);
  /// values *= factor; to = values.
  void (*multiply)(double* values, double factor, std::size_t width, float* to);
  /// factors = scales / sqrt(variances + epsilon).
  void (*scale)(const float* scales, const float* variances, double epsilon, std::size_t width, float* factors);
  void (*finish_gradients)(const NormGradients& of, std::size_t width);
};

struct NormKernelSet {
  NormKernels<float> f32;
  NormKernels<std::uint16_t> bf16;
  NormSumKernels sums;

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
