#pragma once

#include <array>

#include "devices/cuda/kernels/list.hpp"

namespace troupe::cuda {

/// The kernels for GPUs, as cuModuleLoadData takes them. Without a CUDA toolkit there were none to build: a driver then
/// refuses the image.
const void* kernel_image() noexcept;
bool has_kernel_image() noexcept;
/// For people: "for sm_75 sm_80, CUDA 13.0", or that there are none.
const char* kernel_image_name() noexcept;

/// The symbols in it, in the order of KernelId.
inline constexpr std::array kKernelNames{
#define TROUPE_KERNEL_NAME(name, Args) "troupe_" #name,
    TROUPE_CUDA_KERNELS(TROUPE_KERNEL_NAME)
#undef TROUPE_KERNEL_NAME
};

}  // namespace troupe::cuda
