#pragma once

#include <string>

namespace troupe::rtrun {

/// docs/app-toml.md: every key of app.toml that this build takes, as Markdown.
std::string reference_page();

}  // namespace troupe::rtrun
