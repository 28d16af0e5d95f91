// Compiled where cuda.h is found: proves that driver_api.hpp says the same. There is nothing in it to run.
#include "devices/cuda/driver_api.hpp"

#include <cuda.h>

#include "runtime/base/detail/same_binary.hpp"

namespace troupe::cuda {
namespace {

#define TROUPE_CUDA_SAME(member, symbol, ...) \
  static_assert(detail::SameFunction<decltype(Driver::member), decltype(&::symbol)>::value, #symbol);
TROUPE_CUDA_ENTRY_POINTS(TROUPE_CUDA_SAME)
#undef TROUPE_CUDA_SAME

TROUPE_SAME_VALUE(Result::success, CUDA_SUCCESS)
TROUPE_SAME_VALUE(Result::invalid_value, CUDA_ERROR_INVALID_VALUE)
TROUPE_SAME_VALUE(Result::out_of_memory, CUDA_ERROR_OUT_OF_MEMORY)
TROUPE_SAME_VALUE(Result::not_initialized, CUDA_ERROR_NOT_INITIALIZED)
TROUPE_SAME_VALUE(Result::deinitialized, CUDA_ERROR_DEINITIALIZED)
TROUPE_SAME_VALUE(Result::stub_library, CUDA_ERROR_STUB_LIBRARY)
TROUPE_SAME_VALUE(Result::device_unavailable, CUDA_ERROR_DEVICE_UNAVAILABLE)
TROUPE_SAME_VALUE(Result::no_device, CUDA_ERROR_NO_DEVICE)
TROUPE_SAME_VALUE(Result::invalid_device, CUDA_ERROR_INVALID_DEVICE)
TROUPE_SAME_VALUE(Result::invalid_image, CUDA_ERROR_INVALID_IMAGE)
TROUPE_SAME_VALUE(Result::invalid_context, CUDA_ERROR_INVALID_CONTEXT)
TROUPE_SAME_VALUE(Result::map_failed, CUDA_ERROR_MAP_FAILED)
TROUPE_SAME_VALUE(Result::already_mapped, CUDA_ERROR_ALREADY_MAPPED)
TROUPE_SAME_VALUE(Result::no_binary_for_gpu, CUDA_ERROR_NO_BINARY_FOR_GPU)
TROUPE_SAME_VALUE(Result::ecc_uncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE)
TROUPE_SAME_VALUE(Result::peer_access_unsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
TROUPE_SAME_VALUE(Result::invalid_ptx, CUDA_ERROR_INVALID_PTX)
TROUPE_SAME_VALUE(Result::nvlink_uncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE)
TROUPE_SAME_VALUE(Result::unsupported_ptx_version, CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
TROUPE_SAME_VALUE(Result::contained, CUDA_ERROR_CONTAINED)
TROUPE_SAME_VALUE(Result::operating_system, CUDA_ERROR_OPERATING_SYSTEM)
TROUPE_SAME_VALUE(Result::invalid_handle, CUDA_ERROR_INVALID_HANDLE)
TROUPE_SAME_VALUE(Result::illegal_state, CUDA_ERROR_ILLEGAL_STATE)
TROUPE_SAME_VALUE(Result::not_found, CUDA_ERROR_NOT_FOUND)
TROUPE_SAME_VALUE(Result::not_ready, CUDA_ERROR_NOT_READY)
TROUPE_SAME_VALUE(Result::illegal_address, CUDA_ERROR_ILLEGAL_ADDRESS)
TROUPE_SAME_VALUE(Result::launch_out_of_resources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
TROUPE_SAME_VALUE(Result::launch_timeout, CUDA_ERROR_LAUNCH_TIMEOUT)
TROUPE_SAME_VALUE(Result::peer_access_already_enabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
TROUPE_SAME_VALUE(Result::primary_context_active, CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE)
TROUPE_SAME_VALUE(Result::context_is_destroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED)
TROUPE_SAME_VALUE(Result::host_memory_already_registered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
TROUPE_SAME_VALUE(Result::host_memory_not_registered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
TROUPE_SAME_VALUE(Result::launch_failed, CUDA_ERROR_LAUNCH_FAILED)
TROUPE_SAME_VALUE(Result::not_permitted, CUDA_ERROR_NOT_PERMITTED)
TROUPE_SAME_VALUE(Result::not_supported, CUDA_ERROR_NOT_SUPPORTED)
TROUPE_SAME_VALUE(Result::system_not_ready, CUDA_ERROR_SYSTEM_NOT_READY)
TROUPE_SAME_VALUE(Result::system_driver_mismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)
TROUPE_SAME_VALUE(Result::stream_capture_unsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
TROUPE_SAME_VALUE(Result::stream_capture_invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
TROUPE_SAME_VALUE(Result::stream_capture_merge, CUDA_ERROR_STREAM_CAPTURE_MERGE)
TROUPE_SAME_VALUE(Result::stream_capture_unmatched, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
TROUPE_SAME_VALUE(Result::stream_capture_unjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
TROUPE_SAME_VALUE(Result::stream_capture_isolation, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
TROUPE_SAME_VALUE(Result::stream_capture_implicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
TROUPE_SAME_VALUE(Result::captured_event, CUDA_ERROR_CAPTURED_EVENT)
TROUPE_SAME_VALUE(Result::stream_capture_wrong_thread, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
TROUPE_SAME_VALUE(Result::unknown, CUDA_ERROR_UNKNOWN)

TROUPE_SAME_VALUE(DeviceAttribute::multiprocessor_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
TROUPE_SAME_VALUE(DeviceAttribute::compute_mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)
TROUPE_SAME_VALUE(DeviceAttribute::unified_addressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)
TROUPE_SAME_VALUE(DeviceAttribute::compute_capability_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
TROUPE_SAME_VALUE(DeviceAttribute::compute_capability_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
TROUPE_SAME_VALUE(DeviceAttribute::can_use_host_pointer_for_registered_memory,
                  CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)
TROUPE_SAME_VALUE(ComputeMode::normal, CU_COMPUTEMODE_DEFAULT)
TROUPE_SAME_VALUE(ComputeMode::prohibited, CU_COMPUTEMODE_PROHIBITED)
TROUPE_SAME_VALUE(ComputeMode::exclusive_process, CU_COMPUTEMODE_EXCLUSIVE_PROCESS)

TROUPE_SAME_VALUE(AllocationType::invalid, CU_MEM_ALLOCATION_TYPE_INVALID)
TROUPE_SAME_VALUE(AllocationType::pinned, CU_MEM_ALLOCATION_TYPE_PINNED)
TROUPE_SAME_VALUE(AllocationHandleType::none, CU_MEM_HANDLE_TYPE_NONE)
TROUPE_SAME_VALUE(AllocationHandleType::posix_file_descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
TROUPE_SAME_VALUE(LocationType::invalid, CU_MEM_LOCATION_TYPE_INVALID)
TROUPE_SAME_VALUE(LocationType::device, CU_MEM_LOCATION_TYPE_DEVICE)
TROUPE_SAME_VALUE(CaptureMode::global, CU_STREAM_CAPTURE_MODE_GLOBAL)
TROUPE_SAME_VALUE(CaptureMode::thread_local_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
TROUPE_SAME_VALUE(CaptureMode::relaxed, CU_STREAM_CAPTURE_MODE_RELAXED)

TROUPE_SAME_VALUE(kHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE)
TROUPE_SAME_VALUE(kHostAllocDeviceMap, CU_MEMHOSTALLOC_DEVICEMAP)
TROUPE_SAME_VALUE(kHostRegisterPortable, CU_MEMHOSTREGISTER_PORTABLE)
TROUPE_SAME_VALUE(kHostRegisterDeviceMap, CU_MEMHOSTREGISTER_DEVICEMAP)
TROUPE_SAME_VALUE(kStreamNonBlocking, CU_STREAM_NON_BLOCKING)
TROUPE_SAME_VALUE(kEventBlockingSync, CU_EVENT_BLOCKING_SYNC)
TROUPE_SAME_VALUE(kEventDisableTiming, CU_EVENT_DISABLE_TIMING)
TROUPE_SAME_VALUE(kGraphUseNodePriority, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)
TROUPE_SAME_VALUE(kWaitValueGeq, CU_STREAM_WAIT_VALUE_GEQ)
TROUPE_SAME_VALUE(kWaitValueEq, CU_STREAM_WAIT_VALUE_EQ)
TROUPE_SAME_VALUE(kWaitValueAnd, CU_STREAM_WAIT_VALUE_AND)
TROUPE_SAME_VALUE(kWaitValueFlush, CU_STREAM_WAIT_VALUE_FLUSH)
TROUPE_SAME_VALUE(kWriteValueDefault, CU_STREAM_WRITE_VALUE_DEFAULT)
TROUPE_SAME_VALUE(kIpcLazyEnablePeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
TROUPE_SAME_VALUE(kLaunchParamEnd, CU_LAUNCH_PARAM_END_AS_INT)
TROUPE_SAME_VALUE(kLaunchParamBufferPointer, CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT)
TROUPE_SAME_VALUE(kLaunchParamBufferSize, CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT)

#define TROUPE_SAME_PLACE(Ours, our, Theirs, their)              \
  static_assert(offsetof(Ours, our) == offsetof(Theirs, their)); \
  static_assert(sizeof(Ours::our) == sizeof(Theirs::their));
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
