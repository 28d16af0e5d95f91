#include "devices/cuda/kernel_image.hpp"

#if defined(TROUPE_KERNEL_IMAGE)
// The assembler takes the file as it is.
asm(R"(
  .pushsection .rodata
  .balign 64
  .globl troupe_kernel_image
  .hidden troupe_kernel_image
troupe_kernel_image:
  .incbin ")" TROUPE_KERNEL_IMAGE R"("
  .byte 0
  .popsection
)");
extern "C" const unsigned char troupe_kernel_image[];
#endif

namespace troupe::cuda {

#if defined(TROUPE_KERNEL_IMAGE)
const void* kernel_image() noexcept { return troupe_kernel_image; }
bool has_kernel_image() noexcept { return true; }
const char* kernel_image_name() noexcept { return TROUPE_KERNEL_IMAGE_NAME; }
#else
const void* kernel_image() noexcept { return ""; }
bool has_kernel_image() noexcept { return false; }
const char* kernel_image_name() noexcept { return "none: built without the CUDA toolkit"; }
#endif

}  // namespace troupe::cuda
