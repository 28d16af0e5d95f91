#pragma once

#include <cstdint>

namespace troupe {

/// Which instruction sets Troupe's own loops and oneDNN may use: TROUPE_MAX_CPU_ISA, which is read once.
enum class MaxCpuIsa : std::uint8_t { baseline, avx2, avx512, all };
/// Accepts "baseline", "avx2" and "avx512" (without AMX); null or empty: all. Throws Error{invalid} for other text.
MaxCpuIsa parse_max_cpu_isa(const char* text);
MaxCpuIsa max_cpu_isa();

/// Whether this processor has, and max_cpu_isa() allows, the instructions that files compiled for AVX2 use.
bool may_use_avx2();
/// The same for AVX-512 with its parts F, BW, DQ and VL.
bool may_use_avx512();

}  // namespace troupe
