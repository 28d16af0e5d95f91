#include "runtime/base/shared_library.hpp"

#include <dlfcn.h>

namespace troupe {

SharedLibrary::SharedLibrary(const char* name) : name_(name), handle_(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr) return;
  const char* const error = ::dlerror();
  missing_ = error == nullptr ? name : error;
}

void* SharedLibrary::address_of(const char* symbol) {
  if (handle_ == nullptr) return nullptr;
  void* const found = ::dlsym(handle_, symbol);
  if (found == nullptr && missing_.empty()) missing_ = name_ + " has no " + symbol;
  return found;
}

}  // namespace troupe
