#include "tools/rtrun/version.hpp"

#include <caf/config.hpp>

#include "runtime/base/error.hpp"

namespace troupe::rtrun {
namespace {

std::string or_none(std::string version) { return version.empty() ? "not in this build" : version; }

}  // namespace

std::string version_text() {
  return text("rtrun (troupe) ", TROUPE_VERSION, "\nCAF    ", CAF_MAJOR_VERSION, '.', CAF_MINOR_VERSION, '.',
              CAF_PATCH_VERSION, "\nUCX    ", or_none(TROUPE_UCX_VERSION), "\noneDNN ", or_none(TROUPE_ONEDNN_VERSION),
              '\n');
}

}  // namespace troupe::rtrun
