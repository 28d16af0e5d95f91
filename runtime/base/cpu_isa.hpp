#pragma once

#include <cstdint>

namespace troupe {

/// Which instruction sets Troupe's own loops and oneDNN may use: TROUPE_MAX_CPU_ISA, which is read once.
enum class MaxCpuIsa : std::uint8_t { baseline, avx2, avx512, all };
/// Accepts "baseline", "avx2" and "avx512" (without AMX); null or empty: all. Throws Error{invalid} for other text.
MaxCpuIsa parse_max_cpu_isa(const char* text);
MaxCpuIsa max_cpu_isa();

/// Instruction sets that files of kernels are compiled for. avx512: its parts F, BW, DQ and VL.
enum class CpuIsa : std::uint8_t { baseline, avx2, avx2_fma, avx512, avx512_bf16 };
/// Whether this processor has, and max_cpu_isa() allows, these instructions.
bool may_use(CpuIsa isa);

}  // namespace troupe
