#include "devices/cpu/kernels/kernels.hpp"

#include <cstdlib>
#include <string_view>

#include "runtime/base/error.hpp"

namespace troupe::cpu {

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

std::vector<const Kernels*> usable_kernels() {
  std::vector<const Kernels*> usable{&kBaselineKernels};
#if defined(TROUPE_KERNELS_X86)
  __builtin_cpu_init();
  const MaxCpuIsa most = max_cpu_isa();
  if (most >= MaxCpuIsa::avx2 && __builtin_cpu_supports("avx2")) usable.push_back(&kAvx2Kernels);
  if (most >= MaxCpuIsa::avx512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    usable.push_back(&kAvx512Kernels);
  }
#endif
  return usable;
}

const Kernels& best_kernels() { return *usable_kernels().back(); }

}  // namespace troupe::cpu
