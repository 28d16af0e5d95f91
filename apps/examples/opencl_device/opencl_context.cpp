#include "opencl_context.hpp"

#include <vector>

namespace opencl {
namespace {

/// With these options the rules give the defined bits (the kernels switch contraction off), and denormals are flushed
/// as on the other devices.
constexpr const char* kBuildOptions =
    "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt -cl-denorms-are-zero -Werror";

template <class T>
T ask(cl_device_id device, cl_device_info what) {
  T answer{};
  check(clGetDeviceInfo(device, what, sizeof answer, &answer, nullptr), "clGetDeviceInfo");
  return answer;
}

std::string ask_text(cl_device_id device, cl_device_info what) {
  std::size_t size = 0;
  check(clGetDeviceInfo(device, what, 0, nullptr, &size), "clGetDeviceInfo");
  std::string answer(size, '\0');
  check(clGetDeviceInfo(device, what, size, answer.data(), nullptr), "clGetDeviceInfo");
  while (!answer.empty() && answer.back() == '\0') answer.pop_back();
  return answer;
}

/// What `device` lacks; empty: nothing. Gradients, sums and parameters are in memory that the ranks of a node share,
/// and kernels work on it in place. A device with its own memory would have to copy what each command reads to the
/// device, and what it writes back (clEnqueueWriteBuffer, clEnqueueReadBuffer), or use arenas in device memory that
/// peers can map.
std::string lacks(cl_device_id device) {
  const std::string extensions = ask_text(device, CL_DEVICE_EXTENSIONS);
  if (!ask<cl_bool>(device, CL_DEVICE_HOST_UNIFIED_MEMORY)) return "memory shared with the host";
  if (!ask<cl_bool>(device, CL_DEVICE_AVAILABLE) || !ask<cl_bool>(device, CL_DEVICE_COMPILER_AVAILABLE))
    return "a compiler";
  if (!ask<cl_bool>(device, CL_DEVICE_ENDIAN_LITTLE) || ask<cl_uint>(device, CL_DEVICE_ADDRESS_BITS) != 64)
    return "64-bit little-endian addresses";
  if (extensions.find("cl_khr_fp64") == extensions.npos) return "f64 (cl_khr_fp64)";
  if (extensions.find("cl_khr_int64_base_atomics") == extensions.npos)
    return "64-bit atomics (cl_khr_int64_base_atomics)";
  if (!(ask<cl_device_fp_config>(device, CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT))
    return "correctly rounded division and root";
  return {};
}

std::vector<cl_device_id> all_devices() {
  cl_uint count = 0;
  if (clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS) return {};
  std::vector<cl_platform_id> platforms(count);
  check(clGetPlatformIDs(count, platforms.data(), nullptr), "clGetPlatformIDs");
  std::vector<cl_device_id> devices;
  for (const cl_platform_id platform : platforms) {
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS) continue;
    std::vector<cl_device_id> found(count);
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, found.data(), nullptr), "clGetDeviceIDs");
    devices.insert(devices.end(), found.begin(), found.end());
  }
  return devices;
}

}  // namespace

Context::Context() {
  choose_device();
  cl_int error = CL_SUCCESS;
  context_.reset(clCreateContext(nullptr, 1, &device_, nullptr, nullptr, &error));
  check(error, "clCreateContext");
  build_program();
}

void Context::choose_device() {
  std::string why;
  for (const cl_device_id device : all_devices()) {
    const std::string lacking = lacks(device);
    if (lacking.empty()) {
      device_ = device;
      compute_units_ = ask<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS);
      description_ = text("OpenCL ", ask_text(device, CL_DEVICE_NAME), ", driver ", ask_text(device, CL_DRIVER_VERSION),
                          ", ", compute_units_, " compute units");
      return;
    }
    why += text("; ", ask_text(device, CL_DEVICE_NAME), " has no ", lacking);
  }
  fail(Code::unsupported,
       why.empty() ? "no OpenCL device was found: install a platform, e.g. Debian's pocl-opencl-icd"
                   : text("no OpenCL device can do this", why, ": install another platform, e.g. pocl-opencl-icd"));
}

void Context::build_program() {
  cl_int error = CL_SUCCESS;
  std::array<const char*, kKernelSources.size()> sources = kKernelSources;
  program_.reset(
      clCreateProgramWithSource(context_.get(), static_cast<cl_uint>(sources.size()), sources.data(), nullptr, &error));
  check(error, "clCreateProgramWithSource");
  error = clBuildProgram(program_.get(), 1, &device_, kBuildOptions, nullptr, nullptr);
  if (error == CL_SUCCESS) return;
  std::size_t size = 0;
  check(clGetProgramBuildInfo(program_.get(), device_, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size), "reading the log");
  std::string log(size, '\0');
  check(clGetProgramBuildInfo(program_.get(), device_, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr),
        "reading the log");
  fail(Code::device_fault, text("OpenCL: the kernels do not compile (error ", error, "): ", log.c_str()));
}

OwnedQueue Context::make_queue() const {
  cl_int error = CL_SUCCESS;
  OwnedQueue made{clCreateCommandQueueWithProperties(context_.get(), device_, nullptr, &error)};  // in order
  check(error, "clCreateCommandQueueWithProperties");
  return made;
}

OwnedKernel Context::make_kernel(const char* name) const {
  cl_int error = CL_SUCCESS;
  OwnedKernel made{clCreateKernel(program_.get(), name, &error)};
  check(error, name);
  return made;
}

OwnedBuffer Context::make_buffer(std::uint64_t size_bytes) const {
  cl_int error = CL_SUCCESS;
  OwnedBuffer made{clCreateBuffer(context_.get(), CL_MEM_READ_WRITE, size_bytes, nullptr, &error)};
  check(error, "clCreateBuffer");
  return made;
}

OwnedBuffer Context::make_window(void* host, std::uint64_t size_bytes) const {
  cl_int error = CL_SUCCESS;
  OwnedBuffer made{clCreateBuffer(context_.get(), CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, size_bytes, host, &error)};
  check(error, "clCreateBuffer");
  return made;
}

}  // namespace opencl
