#include "devices/cuda/driver_api.hpp"

#include "runtime/base/shared_library.hpp"

namespace troupe::cuda {

std::optional<Driver> Driver::load(std::string& why, const char* library) {
  SharedLibrary opened{library};
  Driver driver;
#define TROUPE_CUDA_FIND(member, symbol, ...) opened.find(driver.member, #symbol);
  TROUPE_CUDA_ENTRY_POINTS(TROUPE_CUDA_FIND)
#undef TROUPE_CUDA_FIND
  why = opened.missing();
  return why.empty() ? std::optional{driver} : std::nullopt;
}

}  // namespace troupe::cuda
