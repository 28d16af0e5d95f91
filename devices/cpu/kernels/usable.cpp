#include <initializer_list>
#include <vector>

#include "devices/cpu/kernels/attention.hpp"
#include "devices/cpu/kernels/dense.hpp"
#include "devices/cpu/kernels/image_lanes.hpp"
#include "devices/cpu/kernels/kernels.hpp"
#include "devices/cpu/kernels/max_pool.hpp"
#include "devices/cpu/kernels/norms.hpp"
#include "devices/cpu/kernels/one_channel_forward.hpp"
#include "devices/cpu/kernels/one_channel_gradient.hpp"
#include "devices/cpu/kernels/panels.hpp"
#include "devices/cpu/kernels/patches.hpp"
#include "devices/cpu/kernels/weight_layouts.hpp"
#include "runtime/base/cpu_isa.hpp"

/// Entries of a list that exist for x86 only.
#if defined(TROUPE_KERNELS_X86)
#define TROUPE_X86(...) __VA_ARGS__
#else
#define TROUPE_X86(...)
#endif

namespace troupe::cpu {
namespace {

template <class Kernels>
struct Version {
  CpuIsa isa;  // that the kernels are compiled for
  const Kernels* kernels;
};

template <class Kernels>
std::vector<const Kernels*> usable(std::initializer_list<Version<Kernels>> versions) {
  std::vector<const Kernels*> usable;
  for (const Version<Kernels>& version : versions)
    if (may_use(version.isa)) usable.push_back(version.kernels);
  return usable;
}

}  // namespace

std::vector<const Kernels*> usable_kernels() {
  return usable<Kernels>({{CpuIsa::baseline, &kBaselineKernels},
                          TROUPE_X86({CpuIsa::avx2, &kAvx2Kernels}, {CpuIsa::avx512, &kAvx512Kernels})});
}

const Kernels& best_kernels() { return *usable_kernels().back(); }

std::vector<const AttentionKernels*> usable_attention_kernels() {
  return usable<AttentionKernels>(
      {{CpuIsa::baseline, &kBaselineAttention},
       TROUPE_X86({CpuIsa::avx2_fma, &kAvx2Attention}, {CpuIsa::avx512, &kAvx512Attention})});
}

std::vector<const DenseKernels*> usable_dense_kernels(bool bf16) {
  if (bf16) return usable<DenseKernels>({TROUPE_X86({CpuIsa::avx512_bf16, &kBf16DenseKernels})});
  return usable<DenseKernels>(
      {TROUPE_X86({CpuIsa::avx2_fma, &kAvx2DenseKernels}, {CpuIsa::avx512, &kAvx512DenseKernels})});
}

std::vector<const PanelKernels*> usable_panel_kernels(bool bf16) {
  if (bf16) return usable<PanelKernels>({TROUPE_X86({CpuIsa::avx512_bf16, &kBf16PanelKernels})});
  return usable<PanelKernels>(
      {TROUPE_X86({CpuIsa::avx2_fma, &kAvx2PanelKernels}, {CpuIsa::avx512, &kAvx512PanelKernels})});
}

std::vector<const LaneKernels*> usable_lane_kernels(bool bf16) {
  if (bf16) return usable<LaneKernels>({TROUPE_X86({CpuIsa::avx512_bf16, &kBf16LaneKernels})});
  return usable<LaneKernels>(
      {TROUPE_X86({CpuIsa::avx2_fma, &kAvx2LaneKernels}, {CpuIsa::avx512, &kAvx512LaneKernels})});
}

std::vector<const NormKernelSet*> usable_norm_kernels() {
  return usable<NormKernelSet>({TROUPE_X86({CpuIsa::avx2_fma, &kAvx2Norms}, {CpuIsa::avx512, &kAvx512Norms},
                                           {CpuIsa::avx512_bf16, &kAvx512Bf16Norms})});
}

std::vector<const OneChannelGradient*> usable_one_channel_gradients() {
  return usable<OneChannelGradient>(
      {TROUPE_X86({CpuIsa::avx2_fma, &kAvx2OneChannelGradient}, {CpuIsa::avx512, &kAvx512OneChannelGradient})});
}

const OneChannelForward* usable_one_channel_forward() {
  const auto all = usable<OneChannelForward>({TROUPE_X86({CpuIsa::avx512, &kAvx512OneChannelForward})});
  return all.empty() ? nullptr : all.back();
}

template <>
std::vector<const MaxPoolKernels<float>*> usable_max_pools<float>() {
  return usable<MaxPoolKernels<float>>({TROUPE_X86({CpuIsa::avx2, &kAvx2MaxPool}, {CpuIsa::avx512, &kAvx512MaxPool})});
}
template <>
std::vector<const MaxPoolKernels<std::uint16_t>*> usable_max_pools<std::uint16_t>() {
  return usable<MaxPoolKernels<std::uint16_t>>({TROUPE_X86({CpuIsa::avx512, &kAvx512Bf16MaxPool})});
}

std::vector<const MaxPoolKernels<float>*> usable_overlapping_max_pools() {
  return usable<MaxPoolKernels<float>>(
      {TROUPE_X86({CpuIsa::avx2, &kAvx2OverlappingMaxPool}, {CpuIsa::avx512, &kAvx512OverlappingMaxPool})});
}

template <>
std::vector<const PatchKernels<float>*> usable_patch_kernels<float>() {
  return usable<PatchKernels<float>>({TROUPE_X86({CpuIsa::avx2, &kAvx2Patches}, {CpuIsa::avx512, &kAvx512Patches})});
}
template <>
std::vector<const PatchKernels<std::uint16_t>*> usable_patch_kernels<std::uint16_t>() {
  return usable<PatchKernels<std::uint16_t>>({TROUPE_X86({CpuIsa::avx512, &kAvx512Bf16Patches})});
}

const WeightLayoutKernels* usable_weight_layouts() {
  const auto all = usable<WeightLayoutKernels>({TROUPE_X86({CpuIsa::avx512, &kAvx512WeightLayouts})});
  return all.empty() ? nullptr : all.back();
}

}  // namespace troupe::cpu
