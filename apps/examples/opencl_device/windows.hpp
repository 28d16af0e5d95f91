#pragma once

#include <vector>

#include "opencl_context.hpp"
#include "runtime/memory/arena.hpp"

namespace opencl {

/// Arenas and regions as one command queue sees them: a buffer over each, in the host's memory (CL_MEM_USE_HOST_PTR).
/// OpenCL lets either the host or the device have it: the device from the first command that uses it, the host (mapped)
/// wherever the stream waits or says how far it has come. Queues do not share buffers: commands of one would wait for
/// the other's. That other ranks use other parts of the memory all the while is why the device must share memory with
/// the host (Context). Threads: one caller at a time, the stream's.
class Windows {
 public:
  Windows(const Context& context, cl_command_queue queue, const AddressSpace& space)
      : context_(context), queue_(queue), space_(space) {}
  /// Takes all memory out of the host's hands: OpenCL keeps buffers that are mapped.
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;
  /// Where `memory` is to commands enqueued from now on. Throws Error{invalid} when it is not mapped in the space.
  Place use(const Memory& memory);
  /// The same for host memory that is of no arena; it outlives the windows.
  Place use(void* host, std::uint64_t size_bytes);
  /// Commands enqueued from now on find all memory with the host.
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
