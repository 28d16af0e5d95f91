#include "devices/cpu/kernels/patches.hpp"

namespace troupe::cpu {
namespace {

constexpr std::size_t kBytes = 32;

#include "devices/cpu/kernels/patches.inc"

}  // namespace

const PatchKernels<float> kAvx2Patches{"own:patches_avx2", gather<std::uint32_t, float>, scatter};

}  // namespace troupe::cpu
