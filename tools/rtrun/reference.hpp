#pragma once

#include <string>

namespace troupe::rtrun {

/// docs/app-toml.md: every key of app.toml that this build accepts, as Markdown.
std::string reference_page();
/// docs/layers.md: every kind of layer and its attributes, as Markdown.
std::string layers_page();

}  // namespace troupe::rtrun
