#pragma once

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>

#include <memory>
#include <string>
#include <type_traits>

#include "runtime/base/error.hpp"

namespace opencl {

using namespace troupe;

/// Owns one reference to an OpenCL object.
template <class Object, cl_int(CL_API_CALL* kRelease)(Object)>
struct Release {
  void operator()(Object object) const noexcept { kRelease(object); }
};
template <class Object, cl_int(CL_API_CALL* kRelease)(Object)>
using Owned = std::unique_ptr<std::remove_pointer_t<Object>, Release<Object, kRelease>>;

using OwnedContext = Owned<cl_context, clReleaseContext>;
using OwnedQueue = Owned<cl_command_queue, clReleaseCommandQueue>;
using OwnedProgram = Owned<cl_program, clReleaseProgram>;
using OwnedKernel = Owned<cl_kernel, clReleaseKernel>;
using OwnedBuffer = Owned<cl_mem, clReleaseMemObject>;
using OwnedEvent = Owned<cl_event, clReleaseEvent>;

/// Throws Error with `call` and the error's number: out_of_memory if OpenCL reports that, otherwise device_fault.
inline void check(cl_int error, const char* call) {
  if (error == CL_SUCCESS) return;
  const bool memory =
      error == CL_MEM_OBJECT_ALLOCATION_FAILURE || error == CL_OUT_OF_HOST_MEMORY || error == CL_INVALID_BUFFER_SIZE;
  fail(memory ? Code::out_of_memory : Code::device_fault,
       text("OpenCL: ", call, " failed with error ", error, " (CL/cl.h names it)"));
}

/// Part of a buffer, in the form that kernels take.
struct Place {
  cl_mem buffer = nullptr;
  cl_ulong offset = 0;  // bytes
};

}  // namespace opencl
