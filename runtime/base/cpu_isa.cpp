#include "runtime/base/cpu_isa.hpp"

#include <cstdlib>
#include <string_view>

#include "runtime/base/error.hpp"

namespace troupe {

MaxCpuIsa parse_max_cpu_isa(const char* text) {
  const std::string_view name = text != nullptr ? text : "";
  if (name.empty()) return MaxCpuIsa::all;
  if (name == "baseline") return MaxCpuIsa::baseline;
  if (name == "avx2") return MaxCpuIsa::avx2;
  TROUPE_CHECK(name == "avx512", Code::invalid, "TROUPE_MAX_CPU_ISA is \"", name,
               "\"; it takes baseline, avx2 or avx512, or is not set");
  return MaxCpuIsa::avx512;
}

MaxCpuIsa max_cpu_isa() {
  static const MaxCpuIsa most = parse_max_cpu_isa(std::getenv("TROUPE_MAX_CPU_ISA"));
  return most;
}

bool may_use(CpuIsa isa) {
  if (isa == CpuIsa::baseline) return true;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (isa == CpuIsa::avx2 || isa == CpuIsa::avx2_fma) {
    return max_cpu_isa() >= MaxCpuIsa::avx2 && __builtin_cpu_supports("avx2") &&
           (isa == CpuIsa::avx2 || __builtin_cpu_supports("fma"));
  }
  return max_cpu_isa() >= MaxCpuIsa::avx512 && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && (isa == CpuIsa::avx512 || __builtin_cpu_supports("avx512bf16"));
#else
  return false;
#endif
}

}  // namespace troupe
