#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

// What we use of the CUDA driver API (libcuda.so.1), declared here so that everything builds where no toolkit is
// installed. Binary compatible with cuda.h; driver_api_check.cpp proves that where cuda.h is found.
struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUevent_st;
struct CUstream_st;
struct CUgraph_st;
struct CUgraphNode_st;
struct CUgraphExec_st;
struct CUmemPoolHandle_st;

namespace troupe::cuda {

using DeviceId = int;
using DevicePointer = unsigned long long;
using Context = CUctx_st*;
using Module = CUmod_st*;
using Function = CUfunc_st*;
using EventHandle = CUevent_st*;
using StreamHandle = CUstream_st*;
using GraphHandle = CUgraph_st*;
using GraphNode = CUgraphNode_st*;
using GraphExec = CUgraphExec_st*;
using MemoryPool = CUmemPoolHandle_st*;

/// Those that somebody acts on or that the stand-in returns; the driver may return others.
enum class Result : unsigned {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  deinitialized = 4,
  stub_library = 34,
  device_unavailable = 46,
  no_device = 100,
  invalid_device = 101,
  invalid_image = 200,
  invalid_context = 201,
  map_failed = 205,
  already_mapped = 208,
  no_binary_for_gpu = 209,
  ecc_uncorrectable = 214,
  peer_access_unsupported = 217,
  invalid_ptx = 218,
  nvlink_uncorrectable = 220,
  unsupported_ptx_version = 222,
  contained = 226,
  operating_system = 304,
  invalid_handle = 400,
  illegal_state = 401,
  not_found = 500,
  not_ready = 600,
  illegal_address = 700,
  launch_out_of_resources = 701,
  launch_timeout = 702,
  peer_access_already_enabled = 704,
  primary_context_active = 708,
  context_is_destroyed = 709,
  host_memory_already_registered = 712,
  host_memory_not_registered = 713,
  launch_failed = 719,
  not_permitted = 800,
  not_supported = 801,
  system_not_ready = 802,
  system_driver_mismatch = 803,
  stream_capture_unsupported = 900,
  stream_capture_invalidated = 901,
  stream_capture_merge = 902,
  stream_capture_unmatched = 903,
  stream_capture_unjoined = 904,
  stream_capture_isolation = 905,
  stream_capture_implicit = 906,
  captured_event = 907,
  stream_capture_wrong_thread = 908,
  unknown = 999,
};

enum class DeviceAttribute : unsigned {
  multiprocessor_count = 16,
  compute_mode = 20,
  unified_addressing = 41,
  compute_capability_major = 75,
  compute_capability_minor = 76,
  can_use_host_pointer_for_registered_memory = 91,
};
enum class ComputeMode : unsigned { normal = 0, prohibited = 2, exclusive_process = 3 };

enum class AllocationType : unsigned { invalid = 0, pinned = 1 };
enum class AllocationHandleType : unsigned { none = 0, posix_file_descriptor = 1 };
enum class LocationType : unsigned { invalid = 0, device = 1 };
enum class CaptureMode : unsigned { global = 0, thread_local_ = 1, relaxed = 2 };

inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr unsigned kHostAllocDeviceMap = 2;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kHostRegisterDeviceMap = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventBlockingSync = 1;
inline constexpr unsigned kEventDisableTiming = 2;
// Of cuGraphInstantiateWithFlags: nodes keep the priorities of the streams on which they were captured.
inline constexpr unsigned long long kGraphUseNodePriority = 8;
inline constexpr unsigned kWaitValueGeq = 0;  // (int64_t)(*word - value) >= 0
inline constexpr unsigned kWaitValueEq = 1;
inline constexpr unsigned kWaitValueAnd = 2;
inline constexpr unsigned kWaitValueFlush = 1U << 30U;
inline constexpr unsigned kWriteValueDefault = 0;
inline constexpr unsigned kIpcLazyEnablePeerAccess = 1;
// Keys of launch_kernel's `extra`, cast to pointers; it gives the arguments' size as well as their address.
inline constexpr std::uintptr_t kLaunchParamEnd = 0;
inline constexpr std::uintptr_t kLaunchParamBufferPointer = 1;
inline constexpr std::uintptr_t kLaunchParamBufferSize = 2;

struct Uuid {
  char bytes[16];
};
struct IpcMemHandle {
  char reserved[64];
};
struct MemLocation {
  LocationType type;
  int id;
};
struct MemPoolProps {
  AllocationType alloc_type;
  AllocationHandleType handle_types;
  MemLocation location;
  void* win32_security_attributes;
  std::size_t max_size;
  unsigned short usage;
  unsigned char reserved[54];
};

// X(member of Driver, exported symbol, parameters...): the only list of entry points. Driver::load, the check against
// cuda.h and the stand-in are made from it.
#define TROUPE_CUDA_ENTRY_POINTS(X)                                                                                  \
  X(init, cuInit, unsigned flags)                                                                                    \
  X(driver_get_version, cuDriverGetVersion, int* version)                                                            \
  X(get_error_name, cuGetErrorName, Result error, const char** text)                                                 \
  X(get_error_string, cuGetErrorString, Result error, const char** text)                                             \
  X(device_get_count, cuDeviceGetCount, int* count)                                                                  \
  X(device_get, cuDeviceGet, DeviceId* device, int ordinal)                                                          \
  X(device_get_name, cuDeviceGetName, char* name, int length, DeviceId device)                                       \
  X(device_get_attribute, cuDeviceGetAttribute, int* value, DeviceAttribute attribute, DeviceId device)              \
  X(device_get_uuid, cuDeviceGetUuid_v2, Uuid* uuid, DeviceId device)                                                \
  X(device_get_pci_bus_id, cuDeviceGetPCIBusId, char* bus_id, int length, DeviceId device)                           \
  X(device_get_by_pci_bus_id, cuDeviceGetByPCIBusId, DeviceId* device, const char* bus_id)                           \
  X(device_total_mem, cuDeviceTotalMem_v2, std::size_t* bytes, DeviceId device)                                      \
  X(device_primary_ctx_retain, cuDevicePrimaryCtxRetain, Context* context, DeviceId device)                          \
  X(device_primary_ctx_release, cuDevicePrimaryCtxRelease_v2, DeviceId device)                                       \
  X(ctx_set_current, cuCtxSetCurrent, Context context)                                                               \
  X(ctx_synchronize, cuCtxSynchronize, void)                                                                         \
  X(device_can_access_peer, cuDeviceCanAccessPeer, int* can, DeviceId device, DeviceId peer)                         \
  X(ctx_enable_peer_access, cuCtxEnablePeerAccess, Context peer, unsigned flags)                                     \
  X(mem_get_info, cuMemGetInfo_v2, std::size_t* free, std::size_t* total)                                            \
  X(mem_pool_create, cuMemPoolCreate, MemoryPool* pool, const MemPoolProps* props)                                   \
  X(mem_pool_destroy, cuMemPoolDestroy, MemoryPool pool)                                                             \
  X(mem_alloc_from_pool_async, cuMemAllocFromPoolAsync, DevicePointer* pointer, std::size_t bytes, MemoryPool pool,  \
    StreamHandle stream)                                                                                             \
  X(mem_free_async, cuMemFreeAsync, DevicePointer pointer, StreamHandle stream)                                      \
  X(mem_alloc, cuMemAlloc_v2, DevicePointer* pointer, std::size_t bytes)                                             \
  X(mem_free, cuMemFree_v2, DevicePointer pointer)                                                                   \
  X(mem_host_alloc, cuMemHostAlloc, void** pointer, std::size_t bytes, unsigned flags)                               \
  X(mem_free_host, cuMemFreeHost, void* pointer)                                                                     \
  X(mem_host_register, cuMemHostRegister_v2, void* pointer, std::size_t bytes, unsigned flags)                       \
  X(mem_host_unregister, cuMemHostUnregister, void* pointer)                                                         \
  X(mem_host_get_device_pointer, cuMemHostGetDevicePointer_v2, DevicePointer* device, void* pointer, unsigned flags) \
  X(ipc_get_mem_handle, cuIpcGetMemHandle, IpcMemHandle* handle, DevicePointer pointer)                              \
  X(ipc_open_mem_handle, cuIpcOpenMemHandle_v2, DevicePointer* pointer, IpcMemHandle handle, unsigned flags)         \
  X(ipc_close_mem_handle, cuIpcCloseMemHandle, DevicePointer pointer)                                                \
  X(stream_create_with_priority, cuStreamCreateWithPriority, StreamHandle* stream, unsigned flags, int priority)     \
  X(stream_destroy, cuStreamDestroy_v2, StreamHandle stream)                                                         \
  X(stream_query, cuStreamQuery, StreamHandle stream)                                                                \
  X(stream_synchronize, cuStreamSynchronize, StreamHandle stream)                                                    \
  X(stream_wait_event, cuStreamWaitEvent, StreamHandle stream, EventHandle event, unsigned flags)                    \
  X(event_create, cuEventCreate, EventHandle* event, unsigned flags)                                                 \
  X(event_destroy, cuEventDestroy_v2, EventHandle event)                                                             \
  X(event_record, cuEventRecord, EventHandle event, StreamHandle stream)                                             \
  X(event_query, cuEventQuery, EventHandle event)                                                                    \
  X(event_synchronize, cuEventSynchronize, EventHandle event)                                                        \
  X(event_elapsed_time, cuEventElapsedTime, float* milliseconds, EventHandle start, EventHandle end)                 \
  X(stream_wait_value64, cuStreamWaitValue64_v2, StreamHandle stream, DevicePointer word, std::uint64_t value,       \
    unsigned flags)                                                                                                  \
  X(stream_write_value64, cuStreamWriteValue64_v2, StreamHandle stream, DevicePointer word, std::uint64_t value,     \
    unsigned flags)                                                                                                  \
  X(memcpy_async, cuMemcpyAsync, DevicePointer to, DevicePointer from, std::size_t bytes, StreamHandle stream)       \
  X(memcpy_htod_async, cuMemcpyHtoDAsync_v2, DevicePointer to, const void* from, std::size_t bytes,                  \
    StreamHandle stream)                                                                                             \
  X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2, void* to, DevicePointer from, std::size_t bytes, StreamHandle stream)   \
  X(memcpy_dtod_async, cuMemcpyDtoDAsync_v2, DevicePointer to, DevicePointer from, std::size_t bytes,                \
    StreamHandle stream)                                                                                             \
  X(memset_d8_async, cuMemsetD8Async, DevicePointer to, unsigned char value, std::size_t count, StreamHandle stream) \
  X(memset_d32_async, cuMemsetD32Async, DevicePointer to, unsigned value, std::size_t count, StreamHandle stream)    \
  X(module_load_data, cuModuleLoadData, Module* module, const void* image)                                           \
  X(module_unload, cuModuleUnload, Module module)                                                                    \
  X(module_get_function, cuModuleGetFunction, Function* function, Module module, const char* name)                   \
  X(launch_kernel, cuLaunchKernel, Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,             \
    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, StreamHandle stream,                \
    void** parameters, void** extra)                                                                                 \
  X(stream_begin_capture, cuStreamBeginCapture_v2, StreamHandle stream, CaptureMode mode)                            \
  X(stream_end_capture, cuStreamEndCapture, StreamHandle stream, GraphHandle* graph)                                 \
  X(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode, CaptureMode* mode)                       \
  X(graph_get_nodes, cuGraphGetNodes, GraphHandle graph, GraphNode* nodes, std::size_t* count)                       \
  X(graph_instantiate_with_flags, cuGraphInstantiateWithFlags, GraphExec* exec, GraphHandle graph,                   \
    unsigned long long flags)                                                                                        \
  X(graph_upload, cuGraphUpload, GraphExec exec, StreamHandle stream)                                                \
  X(graph_launch, cuGraphLaunch, GraphExec exec, StreamHandle stream)                                                \
  X(graph_exec_destroy, cuGraphExecDestroy, GraphExec exec)                                                          \
  X(graph_destroy, cuGraphDestroy, GraphHandle graph)

/// The driver's entry points. A value: copies call the same library, which stays loaded until the process ends (the
/// driver starts threads and does not survive being unloaded).
struct Driver {
#define TROUPE_CUDA_MEMBER(member, symbol, ...) Result (*member)(__VA_ARGS__) = nullptr;
  TROUPE_CUDA_ENTRY_POINTS(TROUPE_CUDA_MEMBER)
#undef TROUPE_CUDA_MEMBER

  /// Opens `library` and finds every entry point; nothing of the driver is called. Without a value: `why` says which
  /// library or which symbol is missing.
  static std::optional<Driver> load(std::string& why, const char* library = "libcuda.so.1");
};

}  // namespace troupe::cuda
