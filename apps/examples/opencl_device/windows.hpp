#pragma once

#include <vector>

#include "opencl_context.hpp"
#include "runtime/memory/arena.hpp"

namespace opencl {

/// Arenas and regions as buffers of one command queue, in host memory (CL_MEM_USE_HOST_PTR). In OpenCL either the host
/// or the device has access: the device from the first command that uses a buffer on, the host (mapped) where the
/// stream waits or signals. Queues do not share buffers, since commands of one queue would wait for those of another.
/// Other ranks use other parts of the memory at the same time; therefore the device must share memory with the host
/// (Context). Threads: one caller at a time, the stream's.
class Windows {
 public:
  Windows(const Context& context, cl_command_queue queue, const AddressSpace& space)
      : context_(context), queue_(queue), space_(space) {}
  /// Unmaps all buffers: OpenCL keeps mapped buffers alive.
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;
  /// The buffer and offset of `memory` for commands that are enqueued now. Throws Error{invalid} if it is not mapped in
  /// the space.
  Place use(const Memory& memory);
  /// The same for host memory outside of arenas; it outlives this object.
  Place use(void* host, std::uint64_t size_bytes);
  /// Before commands that are enqueued from now on, all memory is mapped for the host.
  void give_back();

 private:
  struct Window {
    void* host;
    std::uint64_t size_bytes;
    OwnedBuffer buffer;
    bool with_host;
  };
  Window& window(void* host, std::uint64_t size_bytes);
  void map(Window& window);

  const Context& context_;
  const cl_command_queue queue_;
  const AddressSpace& space_;
  std::vector<Window> windows_;
};

}  // namespace opencl
