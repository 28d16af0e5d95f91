#include "devices/cpu/kernels/kernels.hpp"

namespace troupe::cpu {
namespace {
#include "devices/cpu/kernels/loops.inc"
}  // namespace

constinit const Kernels kAvx512Kernels = kernels_of("AVX-512");

}  // namespace troupe::cpu
