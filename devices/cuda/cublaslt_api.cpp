#include "devices/cuda/cublaslt_api.hpp"

#include "runtime/base/shared_library.hpp"

namespace troupe::cuda::lt {

std::optional<Library> Library::load(std::string& why, const char* library) {
  SharedLibrary opened{library};
  Library found;
#define TROUPE_CUBLASLT_FIND(member, symbol, ...) opened.find(found.member, #symbol);
  TROUPE_CUBLASLT_ENTRY_POINTS(TROUPE_CUBLASLT_FIND)
#undef TROUPE_CUBLASLT_FIND
  why = opened.missing();
  return why.empty() ? std::optional{found} : std::nullopt;
}

}  // namespace troupe::cuda::lt
