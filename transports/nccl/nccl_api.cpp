#include "transports/nccl/nccl_api.hpp"

#include "runtime/base/shared_library.hpp"

namespace troupe::nccl {

std::optional<Library> Library::load(std::string& why, const char* library) {
  SharedLibrary opened{library};
  Library found;
#define TROUPE_NCCL_FIND(member, symbol, ...) opened.find(found.member, #symbol);
  TROUPE_NCCL_ENTRY_POINTS(TROUPE_NCCL_FIND)
#undef TROUPE_NCCL_FIND
  why = opened.missing();
  return why.empty() ? std::optional{found} : std::nullopt;
}

}  // namespace troupe::nccl
