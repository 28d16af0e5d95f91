// Compiled where cuda.h is found: proves that driver_api.hpp says the same. There is nothing in it to run.
#include "devices/cuda/driver_api.hpp"

#include <cuda.h>

#include "runtime/base/detail/same_binary.hpp"

namespace troupe::cuda {
namespace {

TROUPE_CUDA_ENTRY_POINTS(TROUPE_SAME_ENTRY)
#define TROUPE_VALUES "devices/cuda/driver_values.def"
#include "runtime/base/detail/compare_values.inc"

TROUPE_SAME_PLACE(Uuid, bytes, CUuuid, bytes)
TROUPE_SAME_PLACE(IpcMemHandle, reserved, CUipcMemHandle, reserved)
TROUPE_SAME_PLACE(MemLocation, type, CUmemLocation, type)
TROUPE_SAME_PLACE(MemLocation, id, CUmemLocation, id)
TROUPE_SAME_PLACE(MemPoolProps, alloc_type, CUmemPoolProps, allocType)
TROUPE_SAME_PLACE(MemPoolProps, handle_types, CUmemPoolProps, handleTypes)
TROUPE_SAME_PLACE(MemPoolProps, location, CUmemPoolProps, location)
TROUPE_SAME_PLACE(MemPoolProps, max_size, CUmemPoolProps, maxSize)
TROUPE_SAME_PLACE(MemPoolProps, usage, CUmemPoolProps, usage)
TROUPE_SAME_PLACE(MemPoolProps, reserved, CUmemPoolProps, reserved)

}  // namespace
}  // namespace troupe::cuda
