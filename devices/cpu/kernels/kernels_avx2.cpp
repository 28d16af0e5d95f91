#include "devices/cpu/kernels/kernels.hpp"

namespace troupe::cpu {
namespace {
#include "devices/cpu/kernels/loops.inc"
}  // namespace

constinit const Kernels kAvx2Kernels = kernels_of("AVX2");

}  // namespace troupe::cpu
