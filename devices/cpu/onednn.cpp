#include "devices/cpu/onednn.hpp"

#include <omp.h>
#include <oneapi/dnnl/dnnl_debug.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "devices/cpu/kernels/kernels.hpp"

namespace troupe::cpu {
namespace {

thread_local bool executing = false;

bool tile_palette_reported() {
#if defined(__x86_64__)
  unsigned highest = 0, tiles = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(0x1D, 0, &highest, &b, &c, &d) || highest == 0) return false;
  return __get_cpuid_count(0x1D, 1, &tiles, &b, &c, &d) && (tiles & 0xffff) != 0;
#else
  return false;
#endif
}

std::string_view name_of(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41: return "SSE4.1";
    case dnnl::cpu_isa::avx: return "AVX";
    case dnnl::cpu_isa::avx2: return "AVX2";
    case dnnl::cpu_isa::avx2_vnni: return "AVX2 with VNNI";
    case dnnl::cpu_isa::avx512_core: return "AVX-512";
    case dnnl::cpu_isa::avx512_core_vnni: return "AVX-512 with VNNI";
    case dnnl::cpu_isa::avx512_core_bf16: return "AVX-512 with bf16";
    case dnnl::cpu_isa::avx512_core_amx: return "AVX-512 with AMX bf16";
    default: return "another instruction set";
  }
}

}  // namespace

void check_onednn(dnnl_status_t status, std::string_view what) {
  TROUPE_CHECK(status == dnnl_success, Code::device_fault, "oneDNN, ", what, ": ", dnnl_status2str(status));
}

void limit_onednn() {
  static const bool limited = [] {
    switch (max_cpu_isa()) {
      case MaxCpuIsa::baseline: return dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41) == dnnl::status::success;
      case MaxCpuIsa::avx2: return dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2) == dnnl::status::success;
      case MaxCpuIsa::avx512: return dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16) == dnnl::status::success;
      case MaxCpuIsa::all: break;
    }
    return true;
  }();
  TROUPE_CHECK(
      limited, Code::unsupported,
      "TROUPE_MAX_CPU_ISA comes too late: oneDNN has been used in this process before; set ONEDNN_MAX_CPU_ISA");
}

bool onednn_has_bf16() {
  static const bool has = [] {
    limit_onednn();
    using dnnl::memory;
    const auto matrix = [](memory::data_type type) { return memory::desc{{16, 16}, type, memory::format_tag::ab}; };
    const memory::desc bias{{16}, memory::data_type::f32, memory::format_tag::a};
    const auto bf16 = matrix(memory::data_type::bf16);
    try {
      const dnnl::engine engine{dnnl::engine::kind::cpu, 0};
      describe<dnnl::inner_product_forward>(engine, {}, dnnl::prop_kind::forward_training, bf16, bf16, bias, bf16);
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }();
  return has;
}

bool onednn_has_winograd() {
  static const bool has = [] {
    limit_onednn();
    using dnnl::memory;
    constexpr memory::dim kChannels = 32, kSide = 16;
    const auto any = [](const memory::dims& dims) {
      return memory::desc{dims, memory::data_type::f32, memory::format_tag::any};
    };
    const memory::desc image = any({1, kChannels, kSide, kSide}), weights = any({kChannels, kChannels, 3, 3});
    const memory::desc bias{{kChannels}, memory::data_type::f32, memory::format_tag::a};
    constexpr auto kWinograd = dnnl::algorithm::convolution_winograd;
    const memory::dims ones{1, 1};
    try {
      const dnnl::engine engine{dnnl::engine::kind::cpu, 0};
      const auto forward = describe<dnnl::convolution_forward>(engine, {}, dnnl::prop_kind::forward_training, kWinograd,
                                                               image, weights, bias, image, ones, ones, ones);
      describe_backward<dnnl::convolution_backward_data>(forward, engine, {}, kWinograd, image, weights, image, ones,
                                                         ones, ones);
      describe_backward<dnnl::convolution_backward_weights>(forward, engine, {}, kWinograd, image, weights, bias, image,
                                                            ones, ones, ones);
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }();
  return has;
}

bool has_bf16_instructions() {
  limit_onednn();
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
}

bool has_amx_instructions() {
  limit_onednn();
  return dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx512_core_amx;
}

bool implementation_usable(std::string_view name) {
  static const bool has_palette = tile_palette_reported();
  const bool tiles = name.find("brgemm") != name.npos && name.find("amx") != name.npos;
  return has_palette || !tiles;
}

ThreadsInScope::ThreadsInScope(std::uint32_t threads) noexcept : before_(omp_get_max_threads()) {
  omp_set_num_threads(static_cast<int>(threads));
}
ThreadsInScope::~ThreadsInScope() { omp_set_num_threads(before_); }

BoundPrimitive::BoundPrimitive(dnnl::primitive primitive, const std::vector<std::pair<int, dnnl::memory>>& arguments)
    : primitive_(std::move(primitive)) {
  for (const auto& [argument, memory] : arguments) {
    memories_.push_back(memory);
    arguments_.push_back({argument, memory.get()});
  }
}

void BoundPrimitive::execute(const dnnl::stream& stream) const {
  executing = true;
  const dnnl_status_t status =
      dnnl_primitive_execute(primitive_.get(), stream.get(), static_cast<int>(arguments_.size()), arguments_.data());
  executing = false;
  check_onednn(status, "execution of a primitive");
}

bool executing_primitive() noexcept { return executing; }

std::string onednn_description() {
  const dnnl_version_t& version = *dnnl_version();
  return text("oneDNN ", version.major, '.', version.minor, '.', version.patch, ", ",
              name_of(dnnl::get_effective_cpu_isa()));
}

}  // namespace troupe::cpu
