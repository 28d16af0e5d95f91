#pragma once

#include <string_view>

namespace troupe::report {

/// The page's style sheet, light and dark.
extern const std::string_view kPageStyle;

}  // namespace troupe::report
