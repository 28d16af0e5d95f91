#include "tools/rtrun/version.hpp"

namespace troupe::rtrun {

std::string onednn_version() { return {}; }

}  // namespace troupe::rtrun
