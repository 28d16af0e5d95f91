#pragma once

#include <string>

namespace troupe::rtrun {

/// The version of troupe and those of the libraries that it was built with, one per line; loads none of them.
std::string version_text();
/// The version of the oneDNN library in use; empty in a build without oneDNN.
std::string onednn_version();

}  // namespace troupe::rtrun
