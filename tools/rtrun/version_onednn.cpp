#include <oneapi/dnnl/dnnl.h>

#include "runtime/base/error.hpp"
#include "tools/rtrun/version.hpp"

namespace troupe::rtrun {

std::string onednn_version() {
  const dnnl_version_t& version = *dnnl_version();
  return text(version.major, '.', version.minor, '.', version.patch);
}

}  // namespace troupe::rtrun
