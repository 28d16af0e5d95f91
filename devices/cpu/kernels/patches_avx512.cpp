#include "devices/cpu/kernels/patches.hpp"

namespace troupe::cpu {
namespace {

constexpr std::size_t kBytes = 64;

#include "devices/cpu/kernels/patches.inc"

}  // namespace

const PatchKernels<float> kAvx512Patches{"own:patches_avx512", gather<std::uint32_t, float>, scatter};
const PatchKernels<std::uint16_t> kAvx512Bf16Patches{"own:patches_bf16", gather<std::uint16_t, std::uint16_t>, scatter};

}  // namespace troupe::cpu
