#include "tools/rtrun/version.hpp"

#include <caf/config.hpp>

#include "runtime/base/error.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::rtrun {
namespace {

std::string or_none(const std::string& version) { return version.empty() ? "not in this build" : version; }

}  // namespace

std::string version_text() {
  return text("rtrun (troupe) ", TROUPE_VERSION, "\nCAF    ", CAF_MAJOR_VERSION, '.', CAF_MINOR_VERSION, '.',
              CAF_PATCH_VERSION, "\nUCX    ", or_none(ucx_version()), "\noneDNN ", or_none(onednn_version()), '\n');
}

}  // namespace troupe::rtrun
