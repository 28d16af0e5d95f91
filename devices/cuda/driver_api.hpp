#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/shared_library.hpp"

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

#define TROUPE_VALUES "devices/cuda/driver_values.def"
#include "runtime/base/declare_values.inc"

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

// The only list of entry points. Driver::load, the check against cuda.h and the stand-in are made from it.
#define TROUPE_CUDA_ENTRY_POINTS(X)                                                                                    \
  X(init, cuInit, Result, unsigned flags)                                                                              \
  X(driver_get_version, cuDriverGetVersion, Result, int* version)                                                      \
  X(get_error_name, cuGetErrorName, Result, Result error, const char** text)                                           \
  X(get_error_string, cuGetErrorString, Result, Result error, const char** text)                                       \
  X(device_get_count, cuDeviceGetCount, Result, int* count)                                                            \
  X(device_get, cuDeviceGet, Result, DeviceId* device, int ordinal)                                                    \
  X(device_get_name, cuDeviceGetName, Result, char* name, int length, DeviceId device)                                 \
  X(device_get_attribute, cuDeviceGetAttribute, Result, int* value, DeviceAttribute attribute, DeviceId device)        \
  X(device_get_uuid, cuDeviceGetUuid_v2, Result, Uuid* uuid, DeviceId device)                                          \
  X(device_get_pci_bus_id, cuDeviceGetPCIBusId, Result, char* bus_id, int length, DeviceId device)                     \
  X(device_get_by_pci_bus_id, cuDeviceGetByPCIBusId, Result, DeviceId* device, const char* bus_id)                     \
  X(device_total_mem, cuDeviceTotalMem_v2, Result, std::size_t* bytes, DeviceId device)                                \
  X(device_primary_ctx_retain, cuDevicePrimaryCtxRetain, Result, Context* context, DeviceId device)                    \
  X(device_primary_ctx_release, cuDevicePrimaryCtxRelease_v2, Result, DeviceId device)                                 \
  X(ctx_set_current, cuCtxSetCurrent, Result, Context context)                                                         \
  X(ctx_synchronize, cuCtxSynchronize, Result, void)                                                                   \
  X(device_can_access_peer, cuDeviceCanAccessPeer, Result, int* can, DeviceId device, DeviceId peer)                   \
  X(ctx_enable_peer_access, cuCtxEnablePeerAccess, Result, Context peer, unsigned flags)                               \
  X(mem_get_info, cuMemGetInfo_v2, Result, std::size_t* free, std::size_t* total)                                      \
  X(mem_pool_create, cuMemPoolCreate, Result, MemoryPool* pool, const MemPoolProps* props)                             \
  X(mem_pool_destroy, cuMemPoolDestroy, Result, MemoryPool pool)                                                       \
  X(mem_alloc_from_pool_async, cuMemAllocFromPoolAsync, Result, DevicePointer* pointer, std::size_t bytes,             \
    MemoryPool pool, StreamHandle stream)                                                                              \
  X(mem_free_async, cuMemFreeAsync, Result, DevicePointer pointer, StreamHandle stream)                                \
  X(mem_alloc, cuMemAlloc_v2, Result, DevicePointer* pointer, std::size_t bytes)                                       \
  X(mem_free, cuMemFree_v2, Result, DevicePointer pointer)                                                             \
  X(mem_host_alloc, cuMemHostAlloc, Result, void** pointer, std::size_t bytes, unsigned flags)                         \
  X(mem_free_host, cuMemFreeHost, Result, void* pointer)                                                               \
  X(mem_host_register, cuMemHostRegister_v2, Result, void* pointer, std::size_t bytes, unsigned flags)                 \
  X(mem_host_unregister, cuMemHostUnregister, Result, void* pointer)                                                   \
  X(mem_host_get_device_pointer, cuMemHostGetDevicePointer_v2, Result, DevicePointer* device, void* pointer,           \
    unsigned flags)                                                                                                    \
  X(ipc_get_mem_handle, cuIpcGetMemHandle, Result, IpcMemHandle* handle, DevicePointer pointer)                        \
  X(ipc_open_mem_handle, cuIpcOpenMemHandle_v2, Result, DevicePointer* pointer, IpcMemHandle handle, unsigned flags)   \
  X(ipc_close_mem_handle, cuIpcCloseMemHandle, Result, DevicePointer pointer)                                          \
  X(stream_create_with_priority, cuStreamCreateWithPriority, Result, StreamHandle* stream, unsigned flags,             \
    int priority)                                                                                                      \
  X(stream_destroy, cuStreamDestroy_v2, Result, StreamHandle stream)                                                   \
  X(stream_query, cuStreamQuery, Result, StreamHandle stream)                                                          \
  X(stream_synchronize, cuStreamSynchronize, Result, StreamHandle stream)                                              \
  X(stream_wait_event, cuStreamWaitEvent, Result, StreamHandle stream, EventHandle event, unsigned flags)              \
  X(event_create, cuEventCreate, Result, EventHandle* event, unsigned flags)                                           \
  X(event_destroy, cuEventDestroy_v2, Result, EventHandle event)                                                       \
  X(event_record, cuEventRecord, Result, EventHandle event, StreamHandle stream)                                       \
  X(event_query, cuEventQuery, Result, EventHandle event)                                                              \
  X(event_synchronize, cuEventSynchronize, Result, EventHandle event)                                                  \
  X(event_elapsed_time, cuEventElapsedTime, Result, float* milliseconds, EventHandle start, EventHandle end)           \
  X(stream_wait_value64, cuStreamWaitValue64_v2, Result, StreamHandle stream, DevicePointer word, std::uint64_t value, \
    unsigned flags)                                                                                                    \
  X(stream_write_value64, cuStreamWriteValue64_v2, Result, StreamHandle stream, DevicePointer word,                    \
    std::uint64_t value, unsigned flags)                                                                               \
  X(memcpy_async, cuMemcpyAsync, Result, DevicePointer to, DevicePointer from, std::size_t bytes, StreamHandle stream) \
  X(memcpy_htod_async, cuMemcpyHtoDAsync_v2, Result, DevicePointer to, const void* from, std::size_t bytes,            \
    StreamHandle stream)                                                                                               \
  X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2, Result, void* to, DevicePointer from, std::size_t bytes,                  \
    StreamHandle stream)                                                                                               \
  X(memcpy_dtod_async, cuMemcpyDtoDAsync_v2, Result, DevicePointer to, DevicePointer from, std::size_t bytes,          \
    StreamHandle stream)                                                                                               \
  X(memset_d8_async, cuMemsetD8Async, Result, DevicePointer to, unsigned char value, std::size_t count,                \
    StreamHandle stream)                                                                                               \
  X(memset_d32_async, cuMemsetD32Async, Result, DevicePointer to, unsigned value, std::size_t count,                   \
    StreamHandle stream)                                                                                               \
  X(module_load_data, cuModuleLoadData, Result, Module* module, const void* image)                                     \
  X(module_unload, cuModuleUnload, Result, Module module)                                                              \
  X(module_get_function, cuModuleGetFunction, Result, Function* function, Module module, const char* name)             \
  X(launch_kernel, cuLaunchKernel, Result, Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,       \
    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, StreamHandle stream,                  \
    void** parameters, void** extra)                                                                                   \
  X(stream_begin_capture, cuStreamBeginCapture_v2, Result, StreamHandle stream, CaptureMode mode)                      \
  X(stream_end_capture, cuStreamEndCapture, Result, StreamHandle stream, GraphHandle* graph)                           \
  X(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode, Result, CaptureMode* mode)                 \
  X(graph_get_nodes, cuGraphGetNodes, Result, GraphHandle graph, GraphNode* nodes, std::size_t* count)                 \
  X(graph_instantiate_with_flags, cuGraphInstantiateWithFlags, Result, GraphExec* exec, GraphHandle graph,             \
    unsigned long long flags)                                                                                          \
  X(graph_upload, cuGraphUpload, Result, GraphExec exec, StreamHandle stream)                                          \
  X(graph_launch, cuGraphLaunch, Result, GraphExec exec, StreamHandle stream)                                          \
  X(graph_exec_destroy, cuGraphExecDestroy, Result, GraphExec exec)                                                    \
  X(graph_destroy, cuGraphDestroy, Result, GraphHandle graph)

/// The driver's entry points. A value: copies call the same library, which stays loaded until the process ends (the
/// driver starts threads and does not survive being unloaded).
struct Driver {
  TROUPE_ENTRIES(TROUPE_CUDA_ENTRY_POINTS)
  /// Opens `library` and finds every entry point; nothing of the driver is called. Without a value: `why` says which
  /// library or which symbol is missing.
  static std::optional<Driver> load(std::string& why, const char* library = "libcuda.so.1");
};

}  // namespace troupe::cuda
