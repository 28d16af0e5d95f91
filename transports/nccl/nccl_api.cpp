#include "transports/nccl/nccl_api.hpp"

namespace troupe::nccl {

std::optional<Library> Library::load(std::string& why, const char* library) {
  return load_entries<Library>(why, library);
}

}  // namespace troupe::nccl
