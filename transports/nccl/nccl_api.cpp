#include "transports/nccl/nccl_api.hpp"

#include <dlfcn.h>

#include <type_traits>

namespace troupe::nccl {

std::optional<Library> Library::load(std::string& why, const char* library) {
  void* const handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const error = ::dlerror();
    why = error == nullptr ? library : error;
    return std::nullopt;
  }
  Library found;
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, symbol));
    if (function == nullptr) missing = symbol;
  };
#define TROUPE_NCCL_FIND(member, symbol, Returned, ...) find(found.member, #symbol);
  TROUPE_NCCL_ENTRY_POINTS(TROUPE_NCCL_FIND)
#undef TROUPE_NCCL_FIND
  if (missing == nullptr) return found;
  why = std::string{library} + " has no " + missing;
  return std::nullopt;
}

}  // namespace troupe::nccl
