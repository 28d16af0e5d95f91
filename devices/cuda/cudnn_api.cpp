#include "devices/cuda/cudnn_api.hpp"

#include "runtime/base/shared_library.hpp"

namespace troupe::cuda::dnn {

std::optional<Library> Library::load(std::string& why, const char* library) {
  SharedLibrary opened{library};
  Library found;
#define TROUPE_CUDNN_FIND(member, symbol, ...) opened.find(found.member, #symbol);
  TROUPE_CUDNN_ENTRY_POINTS(TROUPE_CUDNN_FIND)
#undef TROUPE_CUDNN_FIND
  why = opened.missing();
  return why.empty() ? std::optional{found} : std::nullopt;
}

}  // namespace troupe::cuda::dnn
