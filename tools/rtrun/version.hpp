#pragma once

#include <string>

namespace troupe::rtrun {

/// The versions of troupe and of the libraries that it uses, one per line.
std::string version_text();
/// The version of the oneDNN library in use; empty in a build without oneDNN.
std::string onednn_version();

}  // namespace troupe::rtrun
