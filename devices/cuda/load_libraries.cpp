#include "devices/cuda/cublaslt_api.hpp"
#include "devices/cuda/cudnn_api.hpp"
#include "devices/cuda/driver_api.hpp"

namespace troupe::cuda {

std::optional<Driver> Driver::load(std::string& why, const char* library) { return load_entries<Driver>(why, library); }

std::optional<lt::Library> lt::Library::load(std::string& why, const char* library) {
  return load_entries<Library>(why, library);
}

std::optional<dnn::Library> dnn::Library::load(std::string& why, const char* library) {
  return load_entries<Library>(why, library);
}

}  // namespace troupe::cuda
