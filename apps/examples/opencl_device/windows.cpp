#include "windows.hpp"

#include <algorithm>

namespace opencl {

Windows::~Windows() {
  for (const Window& each : windows_) {
    if (each.with_host) clEnqueueUnmapMemObject(queue_, each.buffer.get(), each.host, 0, nullptr, nullptr);
  }
  clFinish(queue_);
}

Place Windows::use(const Memory& memory) {
  const std::byte* const at = space_.address(memory);  // checks the range
  const Region region = space_.region(memory.arena);
  Place place = use(region.base, region.size_bytes);
  place.offset = static_cast<cl_ulong>(at - region.base);
  return place;
}

Place Windows::use(void* host, std::uint64_t size_bytes) {
  Window& found = window(host, size_bytes);
  if (found.with_host) {
    check(clEnqueueUnmapMemObject(queue_, found.buffer.get(), found.host, 0, nullptr, nullptr),
          "clEnqueueUnmapMemObject");
    found.with_host = false;
  }
  return {found.buffer.get(), 0};
}

void Windows::give_back() {
  for (Window& each : windows_) {
    if (!each.with_host) map(each);
  }
}

Windows::Window& Windows::window(void* host, std::uint64_t size_bytes) {
  const auto found = std::find_if(windows_.begin(), windows_.end(), [&](const Window& w) { return w.host == host; });
  if (found != windows_.end()) return *found;
  windows_.push_back({host, size_bytes, context_.make_window(host, size_bytes), false});
  map(windows_.back());
  return windows_.back();
}

void Windows::map(Window& window) {
  cl_int error = CL_SUCCESS;
  const void* const at = clEnqueueMapBuffer(queue_, window.buffer.get(), CL_FALSE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                            window.size_bytes, 0, nullptr, nullptr, &error);
  check(error, "clEnqueueMapBuffer");
  TROUPE_CHECK(at == window.host, Code::device_fault, "OpenCL: memory of the host was mapped elsewhere");
  window.with_host = true;
}

}  // namespace opencl
