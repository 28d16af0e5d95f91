#pragma once

#include <string>

namespace troupe::rtrun {

/// The versions of troupe and of the libraries it runs on, a line each.
std::string version_text();
/// The version of the oneDNN library in use; empty in a build without it.
std::string onednn_version();

}  // namespace troupe::rtrun
