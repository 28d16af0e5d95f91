#pragma once

#include "tools/bench/gpu/command.hpp"

namespace troupe::bench {

/// Times the GPU's own kernels one by one, with the bytes that each must read and write, on tensors of the sizes that
/// the networks have. Prints a JSON line for each. Throws Error{environment} where no GPU can be used.
void measure_kernels(const GpuCase& what);

}  // namespace troupe::bench
