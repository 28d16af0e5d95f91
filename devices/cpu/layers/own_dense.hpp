#pragma once

#include "devices/cpu/kernels/dense.hpp"
#include "devices/cpu/layers/panel_dense.hpp"

namespace troupe::cpu {

/// Operands (ProgramBuilder::operand) and result of a dense layer's forward pass. `bias` is empty if there is none; the
/// output is f32, or bf16 where the operands are.
struct DenseMemories {
  dnnl::memory input, weights, bias, output;
};

/// Adds the forward pass by DenseKernels, of an input that is not in blocks.
void add_own_dense(ProgramBuilder& builder, Calls& calls, const DenseKernels& kernels, const DenseShape& of,
                   const DenseMemories& on);

}  // namespace troupe::cpu
