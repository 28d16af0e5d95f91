#include <dlfcn.h>

#include <atomic>

#include "devices/cuda/driver_api.hpp"

// As the driver of a device: counts the calls in which a host waits for a GPU, and passes them on to libcuda.so.1. That
// library is needed by this one, so every other entry point is found there.
namespace troupe::cuda {
namespace {

std::atomic<unsigned long> waits{0};

template <class... Arguments>
Result pass_on(const char* symbol, Arguments... arguments) {
  waits.fetch_add(1);
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Result (*)(Arguments...)>(::dlsym(driver, symbol))(arguments...);
}

}  // namespace

extern "C" {
Result cuCtxSynchronize() { return pass_on("cuCtxSynchronize"); }
Result cuStreamSynchronize(StreamHandle stream) { return pass_on("cuStreamSynchronize", stream); }
Result cuEventSynchronize(EventHandle event) { return pass_on("cuEventSynchronize", event); }
unsigned long troupe_cuda_calls_waits() { return waits.load(); }
}

}  // namespace troupe::cuda
