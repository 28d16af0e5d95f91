#include "devices/cuda/driver_api.hpp"

#include <dlfcn.h>

#include <type_traits>

namespace troupe::cuda {

std::optional<Driver> Driver::load(std::string& why, const char* library) {
  void* const handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const error = ::dlerror();
    why = error == nullptr ? library : error;
    return std::nullopt;
  }
  Driver driver;
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, symbol));
    if (function == nullptr) missing = symbol;
  };
#define TROUPE_CUDA_FIND(member, symbol, ...) find(driver.member, #symbol);
  TROUPE_CUDA_ENTRY_POINTS(TROUPE_CUDA_FIND)
#undef TROUPE_CUDA_FIND
  if (missing == nullptr) return driver;
  why = std::string{library} + " has no " + missing;
  return std::nullopt;
}

}  // namespace troupe::cuda
