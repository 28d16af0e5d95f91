#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::cpu {

/// Elements of a kernel of 3 x 3, in its order of rows.
inline constexpr std::size_t kPatchTaps = 9;

/// Patches of images: what a kernel of 3 x 3 covers at one place, with f32 or bf16 elements. In an image the channels
/// of a place are neighbours; in a patch, as in the weights of a filter, the elements of the kernel: [channels,
/// kPatchTaps]. Arrays need no alignment.
template <class Element>
struct PatchKernels {
  const char* name;
  /// patch[c * kPatchTaps + t] = places[t][c].
  void (*gather)(const Element* const* places, std::size_t channels, Element* patch);
  /// places[t][c] += patch[c * kPatchTaps + t]. Places may be the same.
  void (*scatter)(const float* patch, std::size_t channels, float* const* places);
};

#if defined(TROUPE_KERNELS_X86)
extern const PatchKernels<float> kAvx2Patches;
extern const PatchKernels<float> kAvx512Patches;
extern const PatchKernels<std::uint16_t> kAvx512Bf16Patches;
#endif

/// All that this machine can execute and max_cpu_isa() allows, the narrowest first.
template <class Element>
std::vector<const PatchKernels<Element>*> usable_patch_kernels();

}  // namespace troupe::cpu
