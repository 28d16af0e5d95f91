#include "devices/cpu/kernels/kernels.hpp"

namespace troupe::cpu {
namespace {
#include "devices/cpu/kernels/loops.inc"
}  // namespace

constinit const Kernels kBaselineKernels = kernels_of("baseline");

}  // namespace troupe::cpu
